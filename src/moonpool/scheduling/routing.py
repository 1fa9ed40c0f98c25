"""The words between a caller (router or simulator) and a policy: what is asked, and what is answered."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moonpool.scheduling.fleet import Fleet


class Hit(NamedTuple):
    """The longest prefix of a prompt that one worker holds, in tokens, and how much of it lies below its engine.

    ``tokens`` counts all; of these ``dram_tokens`` must come from the pool's memory on that host and ``disk_tokens``
    from its disk, the rest is in the engine itself.
    """

    worker_id: int
    tokens: int
    dram_tokens: int = 0
    disk_tokens: int = 0


class Prefixes(Protocol):
    """Who holds how much of one prompt. A match may know a thousand holders: a policy asks only for what it needs."""

    def longest(self, count: int) -> Sequence[Hit]:
        """At most ``count`` holders, the longest prefix first; none with zero tokens; never a dead one."""

    def of(self, worker_id: int) -> Hit:
        """What that worker holds; a hit of zero tokens when nothing."""


class KnownPrefixes:
    """Prefixes given as a whole: the answer of a directory, or a test's."""

    __slots__ = ("_hits", "_order")

    def __init__(self, hits: Mapping[int, Hit]) -> None:
        self._hits = hits
        self._order: list[Hit] | None = None

    def longest(self, count: int) -> Sequence[Hit]:
        """See `Prefixes`."""
        if self._order is None:
            self._order = sorted((hit for hit in self._hits.values() if hit.tokens > 0), key=_by_length)
        return self._order[:count]

    def of(self, worker_id: int) -> Hit:
        """See `Prefixes`."""
        return self._hits.get(worker_id) or Hit(worker_id, 0)


def _by_length(hit: Hit) -> tuple[int, int]:
    return -hit.tokens, hit.worker_id


NO_PREFIXES = KnownPrefixes({})


@dataclass(slots=True)
class Request:
    """A prompt to place: ``tokens`` long, of whose prefix ``prefixes`` tells the holders.

    ``root`` is the hash of its first block (hot-spot replication and sticky ties go by it); ``output_tokens`` is what
    the caller expects to be generated, 0 when unknown.
    """

    tokens: int
    arrival_seconds: float
    prefixes: Prefixes = NO_PREFIXES
    root: int | None = None
    output_tokens: int = 0


class Grounds(enum.Enum):
    """Why a worker was chosen. Counted by the caller: routing is never a mystery."""

    LOCAL_PREFIX = "local_prefix"  # it holds the prefix itself
    FETCHED_PREFIX = "fetched_prefix"  # it fetches the prefix: also leaves a copy there
    LEAST_LOADED = "least_loaded"  # nobody holds anything worth waiting for
    POLICY = "policy"  # a rule that knows neither (random, round robin, ...)


class Refusal(enum.Enum):
    """Why a request was turned away. All but ``NO_WORKER`` go over by themselves as load falls."""

    NO_WORKER = "no_worker"  # none is ready
    OVERLOADED = "overloaded"  # every ready worker is past its limits
    TTFT = "ttft"  # the first token would come after the objective
    TBT = "tbt"  # decoding would be slower than the objective
    KV_FULL = "kv_full"  # no decode worker has room


class Placement(NamedTuple):
    """Where the prompt goes, and what that is predicted to cost.

    ``cached_tokens`` need not be computed: held by the worker, or fetched: ``fetched_tokens`` of them come from
    ``source_id`` (None: nothing is fetched). A fetch runs while the prompt waits in the queue; ``load_seconds`` is
    its whole length, of which ``ttft_seconds`` = max(queue, load) + prefill contains only what the queue does not hide.
    """

    worker_id: int
    cached_tokens: int
    source_id: int | None
    fetched_tokens: int
    queue_seconds: float
    load_seconds: float
    prefill_seconds: float
    ttft_seconds: float
    grounds: Grounds


class DecodePlacement(NamedTuple):
    """The decode worker, and the TBT predicted there once the request has joined (mean of the worst tenth)."""

    worker_id: int
    tbt_seconds: float


class Rejection(NamedTuple):
    """The request is not taken (HTTP 429 or 503). ``retry_after_seconds`` is a hint, not a promise."""

    refusal: Refusal
    retry_after_seconds: float


class PrefillPolicy(Protocol):
    """Chooses the prefill worker. Reads the fleet, never changes it: the caller reports what it did."""

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> Placement | Rejection:
        """Must answer with a worker that ``takes_prefill`` now, or refuse."""


class DecodePolicy(Protocol):
    """Chooses the decode worker."""

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> DecodePlacement | Rejection:
        """Must answer with a worker that ``takes_decode`` now, or refuse."""


class Admission(Protocol):
    """Decides at arrival whether the placed request is worth beginning. The caller reports the request's life."""

    def admit(self, request: Request, placement: Placement, fleet: Fleet, *, now_seconds: float) -> Rejection | None:
        """None admits it."""

    def prefill_planned(self, end_seconds: float) -> None:
        """An admitted request's prefill is predicted to end then."""

    def decode_joined(self, planned_end_seconds: float, now_seconds: float) -> None:
        """That request (named by its planned end) has joined a decode batch."""

    def decode_left(self, joined_seconds: float) -> None:
        """A request that joined then has finished or was lost."""
