"""NVIDIA Dynamo's router: prefill blocks left to compute, and decode blocks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.routing import Hit, Request
from moonpool.scheduling.workers import Worker
from moonpool.sim.policies.scan import Scan

_BLOCK_TOKENS = 512
_DRAM_CREDIT, _DISK_CREDIT = 0.75, 0.25


class Dynamo(Scan):
    """``cost = adjusted + decode_blocks``; the "lmetric" form (``product``) is ``adjusted · (decode_blocks + 1)``.

    ``adjusted`` = active prefill + incoming - overlap credit, in blocks, not below 0; the credit of a block is 1 on the
    device, 0.75 in host memory, 0.25 on disk. Current parametrisation, temperature 0 (router documentation).
    """

    def __init__(self, costs: Costs, random: Random, *, product: bool = False) -> None:
        super().__init__(costs, random)
        self._product = product

    def pick(self, request: Request, workers: Sequence[Worker], now_seconds: float) -> Worker:
        """See `Scan`."""

        def cost(worker: Worker) -> float:
            credit = _credit_tokens(request.prefixes.of(worker.worker_id))
            adjusted = max(0.0, (worker.queue_tokens + request.tokens - credit) / _BLOCK_TOKENS)
            decode = worker.kv_tokens / _BLOCK_TOKENS
            return adjusted * (decode + 1.0) if self._product else adjusted + decode

        return self.least(workers, cost)


def _credit_tokens(hit: Hit) -> float:
    device = hit.tokens - hit.dram_tokens - hit.disk_tokens
    return device + _DRAM_CREDIT * hit.dram_tokens + _DISK_CREDIT * hit.disk_tokens
