"""One look-up a request, cached until it is admitted, within a budget.

The engine asks for every waiting request in every step. The desk asks the pool once, inside the step and for at most
the budget; an answer that is late is waited for outside of the steps, and the request asks again until it is there
or its time is over. The answer is remembered. A request whose load failed gets nothing more. No call is made for
what cannot be shared, nor while the node is away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from moonpool.connectors.health import Health
from moonpool.connectors.request_reasons import LOCAL_IS_LONGER, OFF, STORED_LESS, TOO_MANY, TOO_SHORT
from moonpool.types import Reason

NOT_STORED = Reason.NEVER_STORED.label
NODE_AWAY = Reason.UNAVAILABLE.label
OUT_OF_BUDGET = Reason.TIMED_OUT.label
GAVE_UP = Reason.ENGINE_GAVE_UP.label

# A look-up asks for at most so many blocks (the wire's limit of one question).
BLOCKS_PER_LOOKUP_MAX = 16_384


class MatchAnswer(NamedTuple):
    """What a match said: blocks that can be fetched from the start on; whether anybody answered, or nobody is there."""

    block_count: int
    reachable: bool
    lost: bool = False


class LateAnswer(Protocol):
    """An answer that somebody outside of the steps waits for, such as a `concurrent.futures.Future`."""

    def done(self) -> bool: ...
    def result(self) -> MatchAnswer: ...


class Matcher(NamedTuple):
    """``now(namespace_id, hashes, budget_ms)`` is the only thing here that waits. ``late`` takes the same and returns
    at once.
    """

    now: Callable[[int, Sequence[bytes], int], MatchAnswer]
    late: Callable[[int, Sequence[bytes], int], LateAnswer]


class Ask(NamedTuple):
    """What the desk needs to know of a request.

    ``namespace_id`` is where its blocks are (0: nowhere); ``obstacle`` names why this request must not share (empty:
    it may); ``attempt`` grows each time the request starts anew (preemption), so that it is looked up again.
    """

    request_id: str
    namespace_id: int
    block_hashes: Sequence[bytes]
    token_count: int
    block_size: int
    local_token_count: int
    attempt: int = 0
    obstacle: str = ""


class Decision(NamedTuple):
    """Tokens to load beyond the local hit, or `pending`; why not more; blocks that the pool is known to hold."""

    token_count: int
    pending: bool = False
    reason: str = ""


class Lookup(msgspec.Struct):
    """What is remembered of one request until it is gone."""

    attempt: int = 0
    asked_at_ms: float | None = None
    late: LateAnswer | None = None
    answered: bool = False
    block_count: int = 0
    reason: str = ""
    gave_up: bool = False
    duration_ms: float = 0.0


class LookupLimits(NamedTuple):
    """See ConnectorSettings."""

    budget_ms: int = 2
    pending_ms_max: int = 20
    load_block_count_min: int = 1
    request_count_max: int = 65_536


class LookupDesk:
    """All look-ups of one scheduler."""

    def __init__(
        self,
        matcher: Matcher,
        *,
        health: Health,
        limits: LookupLimits,
        clock_ms: Callable[[], float],
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._matcher = matcher
        self._count = count
        self._health = health
        self._limits = limits
        self._clock_ms = clock_ms
        self._lookups: dict[str, Lookup] = {}

    def decide(self, ask: Ask) -> Decision:
        """How many tokens this request is to load. Calls the pool at most once per answer."""
        if ask.request_id not in self._lookups and len(self._lookups) >= self._limits.request_count_max:
            return Decision(0, reason=TOO_MANY)
        lookup = self._lookups.setdefault(ask.request_id, Lookup(attempt=ask.attempt))
        if lookup.gave_up:
            return Decision(0, reason=GAVE_UP)
        if lookup.attempt != ask.attempt:
            lookup = self._lookups[ask.request_id] = Lookup(attempt=ask.attempt)
        hit_block_count_max = min(len(ask.block_hashes), (ask.token_count - 1) // ask.block_size, BLOCKS_PER_LOOKUP_MAX)
        if not lookup.answered and self._must_wait(lookup, ask, hit_block_count_max):
            return Decision(0, pending=True)
        return self._offer(lookup, ask, hit_block_count_max)

    def _must_wait(self, lookup: Lookup, ask: Ask, hit_block_count_max: int) -> bool:
        """Gets an answer into ``lookup``; true when the request is to ask again in the next step."""
        lookup.reason = self._obstacle(ask, hit_block_count_max)
        if lookup.reason:
            lookup.answered = True
            return False
        hashes = ask.block_hashes[:hit_block_count_max]
        if lookup.asked_at_ms is None:
            return self._ask_now(lookup, ask.namespace_id, hashes)
        return self._ask_again(lookup, hashes)

    def _obstacle(self, ask: Ask, hit_block_count_max: int) -> str:
        if ask.obstacle:
            return ask.obstacle
        if not ask.namespace_id:
            return OFF
        if hit_block_count_max <= 0:
            return TOO_SHORT
        return "" if self._health.up else NODE_AWAY

    def _ask_now(self, lookup: Lookup, namespace_id: int, hashes: Sequence[bytes]) -> bool:
        """The one call inside a step; true when the answer is late."""
        lookup.asked_at_ms = self._clock_ms()
        answer = self._matcher.now(namespace_id, hashes, self._limits.budget_ms)
        self._count("lookups")
        if answer.reachable or answer.lost or not self._limits.pending_ms_max:
            self._take(lookup, answer, len(hashes))
            return False
        self._count("lookup_timeouts")
        lookup.late = self._matcher.late(namespace_id, hashes, self._limits.pending_ms_max)
        return True

    def _ask_again(self, lookup: Lookup, hashes: Sequence[bytes]) -> bool:
        """Whether the late answer is there; true while it may still come."""
        assert lookup.asked_at_ms is not None
        if lookup.late is not None and lookup.late.done():
            self._take(lookup, lookup.late.result(), len(hashes))
            return False
        if self._health.up and self._clock_ms() - lookup.asked_at_ms < self._limits.pending_ms_max:
            return True
        self._take(lookup, MatchAnswer(0, False), len(hashes))
        return False

    def _take(self, lookup: Lookup, answer: MatchAnswer, asked_count: int) -> None:
        now_ms = self._clock_ms()
        lookup.answered = True
        lookup.late = None
        lookup.duration_ms += now_ms - (lookup.asked_at_ms or now_ms)
        if answer.lost:
            self._health.lost(now_ms)
            lookup.reason = NODE_AWAY
        elif not answer.reachable:
            self._health.unanswered(now_ms)
            lookup.reason = OUT_OF_BUDGET
        else:
            self._health.answered()
            lookup.block_count = min(answer.block_count, asked_count)
            if lookup.block_count:
                self._count("lookup_hits")
            if lookup.block_count < asked_count:
                lookup.reason = STORED_LESS if lookup.block_count else NOT_STORED

    def _offer(self, lookup: Lookup, ask: Ask, hit_block_count_max: int) -> Decision:
        block_count = min(lookup.block_count, hit_block_count_max)
        local_block_count = ask.local_token_count // ask.block_size
        gain = block_count - local_block_count
        if gain <= 0:
            return Decision(0, reason=lookup.reason if block_count == 0 else (lookup.reason or LOCAL_IS_LONGER))
        if gain < self._limits.load_block_count_min:
            return Decision(0, reason=LOCAL_IS_LONGER)
        return Decision(gain * ask.block_size, reason=lookup.reason)

    def known_block_count(self, request_id: str) -> int:
        """Blocks from the start on that the pool was found to hold; 0 when it was not asked or did not answer."""
        lookup = self._lookups.get(request_id)
        return 0 if lookup is None or lookup.gave_up else lookup.block_count

    def duration_ms(self, request_id: str) -> float:
        """Time spent waiting for answers for this request."""
        lookup = self._lookups.get(request_id)
        return 0.0 if lookup is None else lookup.duration_ms

    def give_up(self, request_id: str) -> None:
        """A load failed: nothing more from the pool for this request."""
        lookup = self._lookups.setdefault(request_id, Lookup())
        lookup.gave_up = True
        lookup.answered = True
        lookup.block_count = 0

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._lookups.pop(request_id, None)

    def forget_answers(self) -> None:
        """The namespace has changed: what was answered says nothing any more."""
        for request_id, lookup in self._lookups.items():
            if not lookup.gave_up:
                self._lookups[request_id] = Lookup(attempt=lookup.attempt)

    def __len__(self) -> int:
        return len(self._lookups)
