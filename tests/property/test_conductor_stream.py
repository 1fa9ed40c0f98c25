"""Fault 24: whatever is lost, late, repeated or restarted, the index never says more than the worker holds."""

from __future__ import annotations

from collections import deque

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.event_publisher import Message, Publisher, apply
from moonpool.conductor.stream import Action, Apply, AskReplay, Clear, EventStream, StreamLimits

LIMITS = StreamLimits(waiting_count_max=6, recent_count=8, replay_count_max=3, replay_ms=50, retry_ms=10, settle_ms=5)
CONNECTED = "connected"  # in the line of live messages: what follows is of the new connection
ENDED = "ended"
BLOCKS = st.integers(1, 5)
VERBS = st.sampled_from(["stored", "stored", "stored", "removed", "removed", "cleared"])


class Session:
    """A stream, its publisher and what is on the way between them."""

    def __init__(self, *, has_replay: bool, buffer_count: int) -> None:
        self.stream = EventStream(has_replay=has_replay, limits=LIMITS)
        self.publisher = Publisher(buffer_count)
        self.known: set[int] = set()
        self.last: Message | None = None  # applied since the last clear
        self.live: deque[Message | str] = deque([CONNECTED])
        self.request: int | None = None
        self.reply: deque[Message | str] = deque()
        self.now_ms = 0.0
        self.stimuli = 0

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                self.last = msgspec.msgpack.decode(action.payload, type=Message)
                apply(self.known, self.last)
            elif isinstance(action, Clear):
                self.known.clear()
                self.last = None
            else:
                assert isinstance(action, AskReplay)
                self.request = action.start
                self.reply.clear()

    def deliver_live(self) -> None:
        self.stimuli += 1
        message = self.live.popleft()
        if isinstance(message, Message):
            self.do(self.stream.live(message.number, message.payload, self.now_ms))
        else:
            self.request, _ = None, self.reply.clear()
            self.do(self.stream.connect(self.now_ms))

    def disconnect(self) -> None:
        self.request, _ = None, self.reply.clear()
        self.stream.disconnect()

    def serve_replay(self) -> None:
        assert self.request is not None
        self.reply.extend([*self.publisher.replay(self.request), ENDED])
        self.request = None

    def deliver_reply(self) -> None:
        message = self.reply.popleft()
        if isinstance(message, Message):
            self.do(self.stream.replayed(message.number, message.payload, self.now_ms))
        else:
            self.do(self.stream.replay_ended(self.now_ms))

    def advance(self, ms: float) -> None:
        self.now_ms += ms
        self.stimuli += 1
        self.do(self.stream.tick(self.now_ms))

    def settle(self) -> None:
        """Everything on the way arrives, and every request is answered."""
        for _ in range(400):
            if self.live:
                self.deliver_live()
            elif self.request is not None:
                self.serve_replay()
            elif self.reply:
                self.deliver_reply()
            elif self.stream.trusted:
                return
            else:
                self.advance(10)
        raise AssertionError(f"the stream never came to rest: {self.stream.counters}")


class StreamMachine(RuleBasedStateMachine):
    has_replay = True

    @initialize(buffer_count=st.sampled_from([0, 2, 1000]))
    def start(self, buffer_count: int) -> None:
        self.session = Session(has_replay=self.has_replay, buffer_count=buffer_count)

    @rule(verb=VERBS, block=BLOCKS, lost=st.booleans())
    def publish(self, verb: str, block: int, lost: bool) -> None:
        message = self.session.publisher.publish(verb, block)
        if not lost:
            self.session.live.append(message)

    @rule(back=st.integers(0, 12))
    def repeat(self, back: int) -> None:
        """An old message of the present incarnation comes once more."""
        kept = list(self.session.publisher.buffer)
        if kept:
            self.session.live.append(kept[-1 - back % len(kept)])

    @precondition(lambda self: self.session.live)
    @rule()
    def deliver_live(self) -> None:
        self.session.deliver_live()

    @precondition(lambda self: self.session.request is not None)
    @rule()
    def serve_replay(self) -> None:
        self.session.serve_replay()

    @precondition(lambda self: self.session.reply)
    @rule()
    def deliver_reply(self) -> None:
        self.session.deliver_reply()

    @rule(ms=st.sampled_from([1.0, 20.0, 60.0]))
    def advance(self, ms: float) -> None:
        self.session.advance(ms)

    @rule(verbs=st.lists(st.tuples(VERBS, BLOCKS, st.booleans()), max_size=9), seen=st.booleans())
    def restart(self, verbs: list[tuple[str, int, bool]], seen: bool) -> None:
        """Another process at the same address, which publishes before the new connection is noticed, or after."""
        self.session.publisher.restart()
        if seen:
            self.session.disconnect()
        for verb, block, lost in verbs:
            self.publish(verb, block, lost)
        self.session.live.append(CONNECTED)

    @rule()
    def lose_the_connection(self) -> None:
        self.session.disconnect()
        self.session.live.append(CONNECTED)

    @rule(block=BLOCKS)
    def come_to_rest(self, block: int) -> None:
        """One message that arrives: then nothing may be believed that is not so, and what can be known is known."""
        session = self.session
        self.publish("stored", block, lost=False)
        session.settle()
        held = session.publisher.held
        assert session.known <= held
        complete = self.has_replay and session.publisher.buffer_count == 1000 and not session.stream.counters.lost
        if complete:
            assert session.known == held

    @invariant()
    def says_no_more_than_was_held_then(self) -> None:
        if not hasattr(self, "session") or not self.has_replay:
            return
        session = self.session
        if session.last is None:
            assert not session.known
        else:
            assert session.known <= session.publisher.held_after[session.last.incarnation, session.last.number]

    @invariant()
    def asks_no_more_than_a_few_times_for_each_thing_that_happened(self) -> None:
        if hasattr(self, "session"):
            assert self.session.stream.counters.replays <= 2 * LIMITS.replay_count_max * (self.session.stimuli + 1)
            counters = msgspec.structs.astuple(self.session.stream.counters)
            assert min(counters) >= 0


class WithoutReplayMachine(StreamMachine):
    has_replay = False


TestStream = StreamMachine.TestCase
TestStreamWithoutReplay = WithoutReplayMachine.TestCase
