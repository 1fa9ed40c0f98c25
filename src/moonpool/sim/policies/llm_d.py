"""llm-d's scorers."""

from __future__ import annotations

from collections.abc import Sequence

from moonpool.scheduling.routing import Request
from moonpool.scheduling.workers import Worker
from moonpool.sim.policies.scan import Scan

_PREFIX, _KV, _QUEUE = 3.0, 2.0, 2.0


class LLMD(Scan):
    """Weighted sum, highest wins: prefix 3, free KV 2, queue 2; each scorer gives 0 to 1.

    Prefix: the share of the prompt held in consecutive blocks. KV: the share of the cache not in use by running
    requests. Queue: 1 for the shortest queue (in requests), 0 for the longest, linear between.
    """

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""
        shortest = min(worker.queue_count for worker in workers)
        spread = max(worker.queue_count for worker in workers) - shortest

        def score(worker: Worker) -> float:
            prefix = request.prefixes.of(worker.worker_id).tokens / request.tokens
            free = 1.0 - worker.kv_tokens / worker.kv_capacity_tokens
            queue = 1.0 - (worker.queue_count - shortest) / spread if spread else 1.0
            return _PREFIX * prefix + _KV * free + _QUEUE * queue

        return self.least(workers, lambda worker: -score(worker))
