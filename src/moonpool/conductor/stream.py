"""The event stream of one worker: gaps, replays, restarts. A state machine without sockets; its caller does as it says.

Messages are numbered from 0 by their publisher, which keeps the last few thousand for replay. The rules:

- What is applied is always a gapless run of messages of one incarnation of the publisher. Where that cannot be had
  (messages lost and no longer replayed), everything known of the worker is dropped first: less is known, nothing wrong.
- Each replay begins one message before what is missing. Is that one not what it was, the publisher is another one.
- Live messages that come during a replay wait for its end. A replay that does not help is asked again at most
  ``replay_count_max`` times in a row, never in a loop.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, TypeAlias

import msgspec


class Apply(NamedTuple):
    """Take this message's events in."""

    payload: bytes


class Clear(NamedTuple):
    """Drop all that is known of the worker."""

    why: str


class AskReplay(NamedTuple):
    """Ask for every message from this number on; a request under way is given up."""

    start: int


Action: TypeAlias = Apply | Clear | AskReplay


class StreamLimits(msgspec.Struct, frozen=True):
    """Bounds of one stream."""

    waiting_count_max: int = 4_096  # live messages kept during a replay
    waiting_bytes_max: int = 64 * 1024 * 1024
    recent_count: int = 64  # messages remembered to tell a repeated one from a restarted publisher
    replay_count_max: int = 3  # in a row without any progress
    replay_ms: int = 2_000  # for an answer, or the next message of it
    retry_ms: int = 500
    settle_ms: int = 200  # from a new connection to the first request: the subscription must be in force by then


class StreamCounters(msgspec.Struct):
    """Since the registration."""

    applied: int = 0
    repeated: int = 0
    gaps: int = 0
    lost: int = 0  # messages that never came
    replays: int = 0
    replays_failed: int = 0
    restarts: int = 0


class EventStream:
    """``has_replay``: whether the publisher answers requests for replay."""

    def __init__(self, *, has_replay: bool, limits: StreamLimits | None = None) -> None:
        self.limits = StreamLimits() if limits is None else limits
        self.counters = StreamCounters()
        self.connected = False
        self._has_replay = has_replay
        self._next: int | None = None  # the message to apply next; None: nothing is known of the publisher
        self._live: int | None = None  # the last number heard live from this incarnation
        self._recent: OrderedDict[int, int] = OrderedDict()  # number → fingerprint of messages applied
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._replay: _Replay | None = None
        self._attempts = 0
        self._retry_at_ms: float | None = None
        self._verified = False

    @property
    def trusted(self) -> bool:
        """Whether what was applied is what the worker holds, as far as anybody can know."""
        return self.connected and self._verified and self._replay is None and self._retry_at_ms is None

    @property
    def replaying(self) -> bool:
        """Whether a replay is under way."""
        return self._replay is not None

    @property
    def next_number(self) -> int | None:
        """The message due next; None before anything is known."""
        return self._next

    # What happens -------------------------------------------------------------------------------------------

    def connect(self, now_ms: float) -> list[Action]:
        """The publisher is there (again). What was to be read of the connection before has been read by now."""
        self.disconnect()
        self.connected = True
        self._attempts = 0
        if self._has_replay:
            self._retry_at_ms = now_ms + self.limits.settle_ms
            return []
        self._verified = True
        return self._forget("nothing shows whether this is the publisher of before")

    def disconnect(self) -> None:
        """The publisher is gone. What is known stays, untrusted, until it can be verified."""
        self.connected = self._verified = False
        self._live = self._replay = self._retry_at_ms = None
        self._drop_waiting()

    def live(self, number: int, payload: bytes, now_ms: float) -> list[Action]:
        """A message of the subscription; the first one also says that the publisher is there."""
        if not self.connected:
            return self.connect(now_ms) + self.live(number, payload, now_ms)
        if self._recent.get(number) == hash(payload):
            self.counters.repeated += 1
            return []
        if self._live is not None and number <= self._live:
            return self._maybe_restarted(number, payload, now_ms)
        self._live = number
        if self._replay is not None or self._retry_at_ms is not None:
            self._wait(number, payload)
            return []
        if self._next is None or number == self._next:
            return [self._apply(number, payload)]
        if number < self._next:  # numbers this low and not recent: another publisher, or an old repetition
            return self._maybe_restarted(number, payload, now_ms)
        self.counters.gaps += 1
        if not self._has_replay:
            return self._jump(number, payload)
        self._wait(number, payload)
        return self._ask(now_ms)

    def replayed(self, number: int, payload: bytes, now_ms: float) -> list[Action]:
        """A message of the replay under way."""
        replay = self._replay
        if replay is None:
            self.counters.repeated += 1
            return []
        replay.deadline_ms = now_ms + self.limits.replay_ms
        if number < replay.start:
            self.counters.repeated += 1
            return []
        if replay.overlap is not None:
            overlap, replay.overlap = replay.overlap, None
            if number > replay.start:  # too old to be kept: nothing shows whether this is the publisher of before
                return self._jump(number, payload)
            return [] if overlap == hash(payload) else self._restarted(now_ms)
        if self._next is not None and number < self._next:
            self.counters.repeated += 1
            return []
        self._attempts = 0
        if self._next is None or number == self._next:
            return [self._apply(number, payload)]
        return self._jump(number, payload)

    def replay_ended(self, now_ms: float) -> list[Action]:
        """The publisher has sent all that it kept."""
        replay, self._replay = self._replay, None
        if replay is None:
            return []
        if replay.overlap is not None:  # it does not know the message that we had from it
            return self._restarted(now_ms)
        self._verified = True
        if self._next is None:
            self._next = 0
        return self._resume(now_ms)

    def tick(self, now_ms: float) -> list[Action]:
        """Deadlines. Call it a few times a second."""
        if self._replay is not None and now_ms >= self._replay.deadline_ms:
            return self._replay_failed(now_ms)
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            return self._ask(now_ms)
        return []

    # What follows -------------------------------------------------------------------------------------------

    def _ask(self, now_ms: float) -> list[Action]:
        self._retry_at_ms = None
        self._attempts += 1
        self.counters.replays += 1
        last = None if self._next is None else self._next - 1
        overlap = None if last is None else self._recent.get(last)
        start = 0 if overlap is None or last is None else last
        self._replay = _Replay(start, overlap, now_ms + self.limits.replay_ms)
        if overlap is None:
            return [*self._forget("nothing to compare the replay with"), AskReplay(start)]
        return [AskReplay(start)]

    def _replay_failed(self, now_ms: float) -> list[Action]:
        self.counters.replays_failed += 1
        self._replay = None
        if self._attempts < self.limits.replay_count_max:
            self._retry_at_ms = now_ms + self.limits.retry_ms * self._attempts
            return []
        actions = [] if self._verified else self._forget("the replay endpoint does not answer")
        return actions + self._resume(now_ms)

    def _resume(self, now_ms: float) -> list[Action]:
        """After a replay, or without one: what waited, in order."""
        actions: list[Action] = []
        while self._waiting:
            number, payload = self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            if self._next is not None and number < self._next:
                self.counters.repeated += 1
            elif self._next is None or number == self._next:
                self._verified = True
                actions.append(self._apply(number, payload))
            elif self._has_replay and self._attempts < self.limits.replay_count_max:
                self._waiting.appendleft((number, payload))
                self._waiting_bytes += len(payload)
                return actions + self._ask(now_ms)
            else:
                actions += self._give_up(number)
        self._attempts = 0
        return actions

    def _give_up(self, number: int) -> list[Action]:
        """A publisher that has this message would have replayed it: begin anew with the next one that comes live."""
        self.counters.lost += max(1, number - (self._next or 0))
        self._verified = True
        self._drop_waiting()
        return self._forget("messages were lost")

    def _jump(self, number: int, payload: bytes) -> list[Action]:
        """Messages are lost for good: begin anew with this one."""
        self.counters.lost += number - (self._next or 0)
        return [*self._forget("messages were lost"), self._apply(number, payload)]

    def _maybe_restarted(self, number: int, payload: bytes, now_ms: float) -> list[Action]:
        if self._has_replay:  # the replay shows whether it is another publisher
            self._verified = False
            self._live = number
            self._wait(number, payload)
            return self._ask(now_ms)
        self.counters.restarts += 1
        self._live = number
        self._verified = True
        return [*self._forget("the publisher restarted"), self._apply(number, payload)]

    def _restarted(self, now_ms: float) -> list[Action]:
        """The publisher is another one than before: all from the beginning."""
        self.counters.restarts += 1
        self._live = None
        self._attempts = 0
        self._drop_waiting()  # partly of the publisher before; the replay has the rest
        cleared = self._forget("the publisher restarted")
        return cleared + self._ask(now_ms)

    def _apply(self, number: int, payload: bytes) -> Action:
        self.counters.applied += 1
        self._next = number + 1
        self._recent[number] = hash(payload)
        if len(self._recent) > self.limits.recent_count:
            self._recent.popitem(last=False)
        return Apply(payload)

    def _forget(self, why: str) -> list[Action]:
        known = self._next is not None
        self._next = None
        self._recent.clear()
        return [Clear(why)] if known else []

    def _wait(self, number: int, payload: bytes) -> None:
        self._waiting.append((number, payload))
        self._waiting_bytes += len(payload)
        over = len(self._waiting) > self.limits.waiting_count_max or self._waiting_bytes > self.limits.waiting_bytes_max
        if over:  # the publisher keeps them: what is dropped here is asked for again
            self._drop_waiting(but_last=True)

    def _drop_waiting(self, *, but_last: bool = False) -> None:
        last = self._waiting[-1] if but_last and self._waiting else None
        self._waiting.clear()
        self._waiting_bytes = 0
        if last is not None:
            self._waiting.append(last)
            self._waiting_bytes = len(last[1])


class _Replay:
    """A request under way. ``overlap``: the fingerprint that the first message must have; None once it had."""

    def __init__(self, start: int, overlap: int | None, deadline_ms: float) -> None:
        self.start = start
        self.overlap = overlap
        self.deadline_ms = deadline_ms
