"""AIBrix's prefix-cache policy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from moonpool.scheduling.routing import Request
from moonpool.scheduling.workers import Worker
from moonpool.sim.policies.scan import Scan

_IMBALANCE = 16


class AIBrix(Scan):
    """Guard, then match: when running requests differ by more than 16, the least loaded.

    Else the longest match (then the fewest running) among workers with running ≤ mean + 2 deviations; without any
    match the least loaded.
    """

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        running = [worker.queue_count for worker in workers]
        if max(running) - min(running) > _IMBALANCE:
            return self.least(workers, lambda worker: worker.queue_count)
        limit = statistics.fmean(running) + 2.0 * statistics.pstdev(running)
        held = {worker.worker_id: request.prefixes.of(worker.worker_id).tokens for worker in workers}
        matched = [worker for worker in workers if held[worker.worker_id] > 0 and worker.queue_count <= limit]
        if not matched:
            return self.least(workers, lambda worker: worker.queue_count)
        longest = max(held[worker.worker_id] for worker in matched)
        return self.least(
            [worker for worker in matched if held[worker.worker_id] == longest], lambda worker: worker.queue_count
        )
