"""The cache-aware policy of SGLang's gateway."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.routing import Request
from moonpool.scheduling.workers import Worker
from moonpool.sim.policies.scan import Scan

_BALANCE_DIFFERENCE, _BALANCE_RATIO, _CACHE_THRESHOLD = 64, 1.5, 0.3


class SGLang(Scan):
    """Guard, then match: when loads (in requests) differ by more than 64 and 1.5 times, the shortest queue.

    Else the longest match if it covers more than 0.3 of the prompt, else the worker with the smallest tree. The tree of
    a worker is what was routed to it, never shrunk within a run (the gateway's limit of 2²⁶ nodes is far away).
    """

    def __init__(self, costs: Costs, random: Random) -> None:
        super().__init__(costs, random)
        self._tree_tokens: dict[int, int] = {}

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        chosen = self._choose(request, workers)
        added = request.tokens - request.prefixes.of(chosen.worker_id).tokens
        self._tree_tokens[chosen.worker_id] = self._tree_tokens.get(chosen.worker_id, 0) + added
        return chosen

    def _choose(self, request: Request, workers: Sequence[Worker]) -> Worker:
        least = min(worker.queue_count for worker in workers)
        most = max(worker.queue_count for worker in workers)
        if most - least > _BALANCE_DIFFERENCE and most > _BALANCE_RATIO * least:
            return self.least(workers, lambda worker: worker.queue_count)
        best = self.least(workers, lambda worker: -request.prefixes.of(worker.worker_id).tokens)
        if request.prefixes.of(best.worker_id).tokens > _CACHE_THRESHOLD * request.tokens:
            return best
        return self.least(workers, lambda worker: self._tree_tokens.get(worker.worker_id, 0))
