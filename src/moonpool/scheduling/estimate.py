"""What placing a prompt on one worker would cost, and whether to fetch a prefix there or compute it anew."""

from __future__ import annotations

from dataclasses import dataclass

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Grounds, Hit, Placement, Request
from moonpool.scheduling.workers import Worker


@dataclass(frozen=True, slots=True)
class Estimator:
    """Predicts placements with one set of cost models.

    A fetch is never planned that would take longer than ``fetch_deadline_seconds``: who holds the prefix may be slow,
    and a load that fails at its deadline has cost that long for nothing.
    """

    costs: Costs
    fetch_deadline_seconds: float = 10.0

    def local(self, request: Request, worker: Worker, hit: Hit, *, now_seconds: float) -> Placement:
        """With what the worker holds itself; what lies on its disk is loaded only if that is faster."""
        whole = self._placed(request, worker, hit.tokens, now_seconds=now_seconds, load_seconds=self._disk(hit))
        if not hit.disk_tokens:
            return whole
        bare = self._placed(request, worker, hit.tokens - hit.disk_tokens, now_seconds=now_seconds, load_seconds=0.0)
        return whole if whole.ttft_seconds < bare.ttft_seconds else bare

    def fetched(
        self, request: Request, fleet: Fleet, now_seconds: float, *, worker: Worker, held: tuple[Hit, Hit]
    ) -> Placement | None:
        """With the rest of the prefix fetched: ``held`` are the worker's own hit and the source's longer one.

        None when there is nothing worth it to fetch, the source cannot serve, or the deadline would pass.
        """
        own, best = held
        load_seconds = self.fetch_seconds(fleet, worker, own=own, best=best)
        if load_seconds is None:
            return None
        placed = self._placed(request, worker, best.tokens, now_seconds=now_seconds, load_seconds=load_seconds)
        if not placed.cached_tokens:
            return None
        return placed._replace(
            source_id=best.worker_id, fetched_tokens=_missing(own, best), grounds=Grounds.FETCHED_PREFIX
        )

    def fetch_seconds(self, fleet: Fleet, worker: Worker, *, own: Hit, best: Hit) -> float | None:
        """How long fetching what is missing would take; None when it cannot be, as in `fetched`."""
        source = fleet.workers[best.worker_id]
        missing = _missing(own, best)
        if missing <= 0 or source is worker or not source.serves_fetches:
            return None
        load_seconds = self.costs.transfer.seconds(missing, source, worker)
        if best.disk_tokens:
            load_seconds += self._disk(best)
        return None if load_seconds > self.fetch_deadline_seconds else load_seconds

    def faster(
        self, request: Request, fleet: Fleet, now_seconds: float, *, worker: Worker, held: tuple[Hit, Hit]
    ) -> Placement:
        """Fetch or recompute, whichever gives the first token sooner; recompute when they are equal."""
        local = self.local(request, worker, held[0], now_seconds=now_seconds)
        fetched = self.fetched(request, fleet, now_seconds, worker=worker, held=held)
        return local if fetched is None or fetched.ttft_seconds >= local.ttft_seconds else fetched

    def prefill(self, tokens: int, held_tokens: int) -> tuple[int, float]:
        """How many of the held tokens to use, and the seconds then.

        A prefix too short to be worth its load is not used. The last token is always computed: decoding starts from it.
        """
        cached = min(held_tokens, tokens - 1)
        computing = self.costs.prefill.seconds(tokens, 0)
        if cached <= 0:
            return 0, computing
        loading = self.costs.prefill.seconds(tokens, cached)
        return (cached, loading) if loading < computing else (0, computing)

    def _disk(self, hit: Hit) -> float:
        return self.costs.transfer.disk_seconds(hit.disk_tokens) if hit.disk_tokens else 0.0

    def _placed(
        self, request: Request, worker: Worker, held_tokens: int, *, now_seconds: float, load_seconds: float
    ) -> Placement:
        cached, prefill_seconds = self.prefill(request.tokens, held_tokens)
        prefill_seconds *= worker.slowdown
        queue_seconds = worker.queue_seconds(now_seconds)
        return Placement(
            worker_id=worker.worker_id,
            cached_tokens=cached,
            source_id=None,
            fetched_tokens=0,
            queue_seconds=queue_seconds,
            load_seconds=load_seconds,
            prefill_seconds=prefill_seconds,
            ttft_seconds=max(queue_seconds, load_seconds) + prefill_seconds,
            grounds=Grounds.LOCAL_PREFIX if cached else Grounds.LEAST_LOADED,
        )


def _missing(own: Hit, best: Hit) -> int:
    """Tokens to fetch: also those that lie on the worker's own disk, as the source's link is faster than that."""
    return best.tokens - (own.tokens - own.disk_tokens)
