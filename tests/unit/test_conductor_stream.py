"""The stream of one worker, case by case (fault 24); the property test draws the cases that nobody thought of."""

from __future__ import annotations

from moonpool.conductor.stream import Action, Apply, AskReplay, Clear, EventStream, StreamLimits

LIMITS = StreamLimits(replay_ms=50, retry_ms=10, settle_ms=5, replay_count_max=3, waiting_count_max=4, recent_count=4)


def text(number: int, of: str = "a") -> bytes:
    """The payload of a message of one incarnation."""
    return f"{of}{number}".encode()


class Told:
    """A stream and what it had done so far, as words: "a0" applied, "clear", "ask 0"."""

    def __init__(self, *, has_replay: bool = True) -> None:
        self.stream = EventStream(has_replay=has_replay, limits=LIMITS)
        self.done: list[str] = []
        self.now_ms = 0.0

    def note(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self.done.append(action.payload.decode())
            elif isinstance(action, Clear):
                self.done.append("clear")
            else:
                assert isinstance(action, AskReplay)
                self.done.append(f"ask {action.start}")

    def connect(self) -> None:
        self.note(self.stream.connect(self.now_ms))
        self.tick(5)

    def live(self, number: int, of: str = "a") -> None:
        self.note(self.stream.live(number, text(number, of), self.now_ms))

    def replay(self, *numbers: int, of: str = "a", ends: bool = True) -> None:
        for number in numbers:
            self.note(self.stream.replayed(number, text(number, of), self.now_ms))
        if ends:
            self.note(self.stream.replay_ended(self.now_ms))

    def tick(self, ms: float) -> None:
        self.now_ms += ms
        self.note(self.stream.tick(self.now_ms))

    def take(self) -> list[str]:
        """What was done since the last time."""
        done, self.done = self.done, []
        return done


def running(*, upto: int = 3) -> Told:
    """Connected, with messages 0 … upto - 1 from the first replay."""
    told = Told()
    told.connect()
    told.replay(*range(upto))
    assert told.take() == ["ask 0", *(f"a{number}" for number in range(upto))]
    assert told.stream.trusted
    return told


def test_the_first_replay_brings_what_was_stored_before_we_came() -> None:
    told = Told()
    told.connect()
    told.live(3)  # comes while the replay is under way
    assert not told.stream.trusted
    told.replay(0, 1, 2, 3)
    assert told.take() == ["ask 0", "a0", "a1", "a2", "a3"]
    assert told.stream.trusted


def test_a_gap_is_replayed_from_the_message_before_it_and_what_came_live_waits() -> None:
    told = running()
    told.live(5)
    told.live(6)
    assert told.take() == ["ask 2"]
    assert not told.stream.trusted
    told.replay(2, 3, 4, 5)
    assert told.take() == ["a3", "a4", "a5", "a6"]
    assert told.stream.trusted


def test_a_replay_that_comes_after_newer_events_is_of_no_use_and_does_no_harm() -> None:
    told = running()
    told.live(3)
    told.replay(0, 1, 2, 3)
    assert told.take() == ["a3"]


def test_a_message_that_comes_twice_is_taken_once() -> None:
    told = running()
    told.live(3)
    told.live(3)
    told.live(2)
    told.live(4)
    assert told.take() == ["a3", "a4"]
    assert told.stream.counters.restarts == 0


def test_messages_that_are_no_longer_kept_clear_what_is_known_first() -> None:
    told = running()
    told.live(9)
    assert told.take() == ["ask 2"]
    told.replay(7, 8, 9)
    assert told.take() == ["clear", "a7", "a8", "a9"]
    assert told.stream.counters.lost == 4
    assert told.stream.trusted


def test_a_replay_that_begins_right_after_what_we_have_proves_nothing() -> None:
    told = running()
    told.live(4)
    told.replay(3, 4, of="b")  # of another publisher, or of the same whose buffer is short: nobody can know
    assert told.take() == ["ask 2", "clear", "b3", "b4"]


def test_a_publisher_that_restarted_is_noticed_when_it_begins_from_zero() -> None:
    told = running()
    told.live(0, of="b")
    assert told.take() == ["ask 2"]
    told.replay()  # it has no message 2
    assert told.take() == ["clear", "ask 0"]
    told.replay(0, of="b")
    assert told.take() == ["b0"]
    assert told.stream.counters.restarts == 1
    assert told.stream.trusted


def test_a_publisher_that_restarted_and_is_past_us_is_noticed_by_the_message_that_differs() -> None:
    told = running()
    told.live(7, of="b")
    told.replay(2, of="b", ends=False)
    assert told.take() == ["ask 2", "clear", "ask 0"]
    told.replay(*range(8), of="b")
    assert told.take() == [f"b{number}" for number in range(8)]


def test_what_waited_of_the_former_publisher_is_not_taken_for_the_new_one_s() -> None:
    told = running()
    told.live(9)  # a gap; its replay is not answered any more, for the publisher dies
    told.live(0, of="b")
    assert told.take() == ["ask 2", "ask 2"]
    told.replay()
    told.replay(0, of="b")
    assert told.take() == ["clear", "ask 0", "b0"]


def test_a_reconnect_to_the_same_publisher_keeps_what_is_known() -> None:
    told = running()
    told.stream.disconnect()
    assert not told.stream.trusted
    told.connect()
    told.replay(2, 3)
    assert told.take() == ["ask 2", "a3"]
    assert told.stream.trusted


def test_a_reconnect_to_another_publisher_drops_it_though_it_says_nothing() -> None:
    told = running()
    told.stream.disconnect()
    told.connect()
    told.replay()
    told.replay()
    assert told.take() == ["ask 2", "clear", "ask 0"]
    assert told.stream.trusted
    told.live(0, of="b")
    assert told.take() == ["b0"]


def test_a_message_that_nobody_replays_is_given_up_after_a_few_tries() -> None:
    told = running()
    told.live(5)
    for _ in range(LIMITS.replay_count_max):
        told.replay(2)
    assert told.take() == ["ask 2", "ask 2", "ask 2", "clear"]
    told.live(6)
    assert told.take() == ["a6"], "goes on with the next one"
    assert told.stream.trusted


def test_a_replay_endpoint_that_does_not_answer_is_asked_a_few_times_and_no_more() -> None:
    told = running()
    told.live(5)
    for _ in range(40):
        told.tick(30)
    assert told.take() == ["ask 2", "ask 2", "ask 2", "clear"]
    assert told.stream.counters.replays_failed == 3
    told.live(6)
    assert told.take() == ["a6"]


def test_nothing_is_believed_of_a_publisher_that_cannot_be_verified_after_a_reconnect() -> None:
    told = running()
    told.stream.disconnect()
    told.connect()
    for _ in range(40):
        told.tick(30)
    assert told.take() == ["ask 2", "ask 2", "ask 2", "clear"]
    told.live(3)
    assert told.take() == ["a3"]


def test_more_messages_than_may_wait_are_asked_for_again() -> None:
    told = running()
    told.live(4)
    for number in range(5, 12):
        told.live(number)
    told.replay(2, 3, 4, 5)  # what was published when the request came
    assert told.take() == ["ask 2", "a3", "a4", "a5", "ask 5"]
    told.replay(*range(5, 12))
    assert told.take() == [f"a{number}" for number in range(6, 12)]


def test_without_replay_a_gap_clears_and_a_reconnect_clears() -> None:
    told = Told(has_replay=False)
    told.connect()
    told.live(4)
    told.live(5)
    assert told.stream.trusted
    told.live(8)
    assert told.take() == ["a4", "a5", "clear", "a8"]
    told.live(0, of="b")
    assert told.take() == ["clear", "b0"]
    told.stream.disconnect()
    told.connect()
    told.live(1, of="b")
    assert told.take() == ["clear", "b1"]


def test_messages_that_come_before_the_connection_is_noticed_wait_for_the_first_replay() -> None:
    told = Told()
    told.live(5)
    told.live(6)
    assert told.take() == []
    told.connect()  # its notice comes late: what it has to say is in the replay
    told.replay(*range(7))
    assert told.take() == ["ask 0", *(f"a{number}" for number in range(7))]
