"""What became of each request, and the counters of one engine.

The proof of a hit is our own: ``applied_tokens`` counts blocks that every shard verified and applied, not what
was promised at admission.
"""

from __future__ import annotations

import collections
import threading

import msgspec

from moonpool.identity import EngineCounters, RequestOutcome

UNWRITTEN_COUNT_MAX = 4096
_NAMES = frozenset(EngineCounters.__struct_fields__) - {"misses_by_reason"}
_DURATIONS = frozenset(name for name in _NAMES if name.endswith("_ms_total"))


class Outcome(msgspec.Struct, kw_only=True):
    """Of one request while it lives; see `RequestOutcome` for the fields."""

    request_id: str
    prompt_tokens: int
    local_tokens: int = 0
    promised_tokens: int = 0
    applied_tokens: int = 0
    byte_count: int = 0
    lookup_ms: float = 0.0
    load_ms: float = 0.0
    saved_blocks: int = 0
    reason: str = ""
    detail: str = ""

    def closed(self, finished_at: float) -> RequestOutcome:
        """As it is told to others."""
        return RequestOutcome(
            request_id=self.request_id,
            prompt_tokens=self.prompt_tokens,
            local_tokens=self.local_tokens,
            promised_tokens=self.promised_tokens,
            applied_tokens=self.applied_tokens,
            byte_count=self.byte_count,
            lookup_ms=round(self.lookup_ms, 3),
            load_ms=round(self.load_ms, 3),
            saved_blocks=self.saved_blocks,
            reason=self.reason,
            detail=self.detail,
            finished_at=finished_at,
        )


class Ledger:
    """Counters and the last outcomes. Written by the engine's step, read by the reporter's thread."""

    def __init__(self, *, outcome_count: int) -> None:
        self._lock = threading.Lock()
        self._outcomes: collections.deque[RequestOutcome] = collections.deque(maxlen=outcome_count)
        self._unwritten: collections.deque[RequestOutcome] = collections.deque(maxlen=UNWRITTEN_COUNT_MAX)
        self._counts: dict[str, float] = dict.fromkeys(_NAMES, 0.0)
        self._misses: collections.Counter[str] = collections.Counter()

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a counter of `EngineCounters`."""
        with self._lock:
            self._counts[name] += amount

    def miss(self, reason: str) -> None:
        """Something was not served or not stored, and why."""
        with self._lock:
            self._misses[reason] += 1

    def close(self, outcome: RequestOutcome) -> None:
        """A request is done."""
        with self._lock:
            self._outcomes.append(outcome)
            self._unwritten.append(outcome)
            self._counts["requests_finished"] += 1

    def counters(self) -> EngineCounters:
        """All counters now."""
        with self._lock:
            values = {
                name: round(value, 3) if name in _DURATIONS else int(value) for name, value in self._counts.items()
            }
            return msgspec.convert({**values, "misses_by_reason": dict(self._misses)}, EngineCounters)

    def outcomes(self) -> list[RequestOutcome]:
        """The last ones, newest last."""
        with self._lock:
            return list(self._outcomes)

    def take_unwritten(self) -> list[RequestOutcome]:
        """Those not yet given to a report file."""
        with self._lock:
            taken = list(self._unwritten)
            self._unwritten.clear()
        return taken
