"""The base lines: random, round robin, least loaded, local cache-aware, pure longest prefix."""

from __future__ import annotations

from collections.abc import Sequence

from moonpool.scheduling.routing import Request
from moonpool.scheduling.workers import Worker
from moonpool.sim.policies.scan import Scan


class RandomChoice(Scan):
    """Any worker (Fig 5, "random")."""

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        return self.random.choice(workers)


class RoundRobin(Scan):
    """One after the other, by id."""

    _last_id = -1

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        after = [worker for worker in workers if worker.worker_id > self._last_id]
        chosen = min(after or workers, key=lambda worker: worker.worker_id)
        self._last_id = chosen.worker_id
        return chosen


class LeastLoaded(Scan):
    """The shortest predicted queue, whatever is cached where (Fig 5, "load balancing")."""

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        return self.least(workers, lambda worker: worker.queue_seconds(now_seconds))


class LocalPrefix(Scan):
    """The least TTFT with each worker's own cache (Fig 5, "local cache-aware")."""

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        of, local = request.prefixes.of, self.estimator.local
        return self.least(
            workers, lambda worker: local(request, worker, of(worker.worker_id), now_seconds=now_seconds).ttft_seconds
        )


class LongestPrefix(Scan):
    """The longest prefix, whatever is queued there; the shortest queue among equals.

    Collapses where all requests share their first block: whoever has it gets them all.
    """

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        tokens = [request.prefixes.of(worker.worker_id).tokens for worker in workers]
        most = max(tokens)
        equals = [worker for worker, held in zip(workers, tokens, strict=True) if held == most]
        return self.least(equals, lambda worker: worker.queue_seconds(now_seconds))
