"""What work costs in seconds: the contracts of the cost models, and the three that a policy needs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.scheduling.workers import Worker


class PrefillCost(Protocol):
    """Time to compute a prompt on an engine that has nothing else to do."""

    def seconds(self, tokens: int, cached_tokens: int) -> float:
        """A prompt of ``tokens`` whose first ``cached_tokens`` are there already (loading them included)."""


class DecodeCost(Protocol):
    """Time between two tokens of a request in a running batch."""

    def tbt_seconds(self, request_count: int, kv_tokens: int) -> float:
        """With so many requests in the batch that hold so many tokens of KV together."""


class TransferCost(Protocol):
    """Time to bring KV to an engine's host."""

    def seconds(self, tokens: int, source: Worker, target: Worker) -> float:
        """From another worker, beside the transfers that run now."""

    def disk_seconds(self, tokens: int) -> float:
        """From the worker's own disk."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The three models that a policy needs."""

    prefill: PrefillCost
    decode: DecodeCost
    transfer: TransferCost


def mooncake_costs(prefill: PrefillCost | None = None) -> Costs:
    """The Mooncake paper's machine: 8 x A800 and LLaMA3-70B a worker, 87 GB/s between workers."""
    return Costs(FittedPrefill() if prefill is None else prefill, FittedDecode(), SharedLink())
