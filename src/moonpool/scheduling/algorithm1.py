"""Algorithm 1 of the Mooncake paper (FAST'25 §6; arXiv 2407.00079 §6.1), with the cases that it leaves open."""

from __future__ import annotations

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Hit, Placement, Rejection, Request
from moonpool.scheduling.saturation import no_prefill_worker


def fetch_is_worth_it(own_tokens: int, best_tokens: int, threshold: float) -> bool:
    """Whether ``best / own > threshold``; holding nothing is infinitely worse than anything, and equal to nothing."""
    if best_tokens <= own_tokens:
        return False
    return own_tokens == 0 or best_tokens / own_tokens > threshold


class Algorithm1:
    """KVCache-centric scheduling: the least predicted TTFT, the prefix fetched if it is much longer elsewhere.

    The paper tunes ``threshold`` by hand and gives no value; at 1 every longer prefix is fetched. Looks at each worker
    for each request, as the paper does. A fetch that would miss the estimator's deadline is replaced by computing.
    """

    def __init__(self, costs: Costs, *, threshold: float = 1.0, fetch_deadline_seconds: float = 10.0) -> None:
        self._estimator = Estimator(costs, fetch_deadline_seconds)
        self._threshold = threshold
        self._turn = 0

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> Placement | Rejection:
        """See `moonpool.scheduling.routing.PrefillPolicy`."""
        longest = request.prefixes.longest(1)
        best_hit = longest[0] if longest else None
        best: list[Placement] = []
        for worker in fleet.prefill_workers(now_seconds):
            own = request.prefixes.of(worker.worker_id)
            placed = None
            if best_hit is not None and fetch_is_worth_it(own.tokens, best_hit.tokens, self._threshold):
                placed = self._fetched(request, fleet, now_seconds, held=(own, best_hit))
            if placed is None:
                placed = self._estimator.local(request, worker, own, now_seconds=now_seconds)
            if not best or placed.ttft_seconds < best[0].ttft_seconds:
                best = [placed]
            elif placed.ttft_seconds == best[0].ttft_seconds:
                best.append(placed)
        if not best:
            return no_prefill_worker(fleet, now_seconds)
        self._turn += 1
        return best[self._turn % len(best)]

    def _fetched(
        self, request: Request, fleet: Fleet, now_seconds: float, *, held: tuple[Hit, Hit]
    ) -> Placement | None:
        worker = fleet.workers[held[0].worker_id]
        return self._estimator.fetched(request, fleet, now_seconds, worker=worker, held=held)
