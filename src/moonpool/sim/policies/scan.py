"""What all the policies of others share: they look at each worker, and none of them fetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Grounds, Placement, Rejection, Request
from moonpool.scheduling.saturation import no_prefill_worker
from moonpool.scheduling.workers import Worker


class Scan:
    """Picks one of the workers that may be given a prompt; the prompt uses what its worker holds itself."""

    def __init__(self, costs: Costs, random: Random | None = None) -> None:
        self.random = Random(0) if random is None else random
        self.estimator = Estimator(costs)

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> Placement | Rejection:
        """See `moonpool.scheduling.routing.PrefillPolicy`."""
        workers = list(fleet.prefill_workers(now_seconds))
        if not workers:
            return no_prefill_worker(fleet, now_seconds)
        worker = self.pick(request, workers, now_seconds)
        hit = request.prefixes.of(worker.worker_id)
        return self.estimator.local(request, worker, hit, now_seconds=now_seconds)._replace(grounds=Grounds.POLICY)

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """One of ``workers`` (never empty)."""
        raise NotImplementedError

    def least(self, workers: Sequence[Worker], score: Callable[[Worker], float]) -> Worker:
        """The one with the least score; among equals a draw."""
        scores = [score(worker) for worker in workers]
        lowest = min(scores)
        equals = [worker for worker, value in zip(workers, scores, strict=True) if value == lowest]
        return equals[0] if len(equals) == 1 else self.random.choice(equals)
