"""What a scheduling decision knows about one worker, and the limits past which it gets nothing more."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Role(enum.Enum):
    """What a worker does. A store has no engine: it only holds blocks that others may fetch."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"
    STORE = "store"

    @property
    def prefills(self) -> bool:
        """Whether prompts may be sent here."""
        return self is Role.PREFILL or self is Role.BOTH

    @property
    def decodes(self) -> bool:
        """Whether tokens are generated here."""
        return self is Role.DECODE or self is Role.BOTH


class WorkerState(enum.Enum):
    """Pending: not started yet. Draining: finishes what it has, takes nothing new, may still be fetched from."""

    PENDING = "pending"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Limits:
    """Past any of these a worker counts as overloaded and is not picked; past an objective a request is refused.

    ``queue_seconds`` and ``queue_count`` bound the predicted wait and the requests (queued and running) of a prefill
    worker, ``decode_count`` and ``kv_fraction`` those of a decode worker. The objectives (SLOs) are read by admission.
    """

    queue_seconds: float = math.inf
    queue_count: int = 1 << 30
    decode_count: int = 1 << 30
    kv_fraction: float = 1.0
    ttft_seconds: float = 30.0
    tbt_seconds: float = 0.1


@dataclass(slots=True)
class Worker:
    """One engine (or store) as the scheduler sees it. Changed only through `moonpool.scheduling.fleet.Fleet`.

    Attributes:
        worker_id: dense small integer given by the fleet.
        slowdown: how much longer its engine takes than the prefill cost model says (a smaller GPU, a slow host).
        busy_until_seconds: when the prefill work given to it so far is predicted to be done, on the caller's clock.
        queue_count: prompts queued or running here.
        queue_tokens: their tokens still to be computed.
        decode_count: requests being decoded here or on their way here.
        kv_tokens: tokens of KV that those occupy.
        kv_capacity_tokens: how many fit.
        sending_count: fetches now reading from here; shares the bandwidth of this worker's links.
        receiving_count: fetches now writing to here.
    """

    worker_id: int
    name: str
    role: Role = Role.PREFILL
    state: WorkerState = WorkerState.READY
    kv_capacity_tokens: int = 1 << 40
    slowdown: float = 1.0
    busy_until_seconds: float = 0.0
    queue_count: int = 0
    queue_tokens: int = 0
    decode_count: int = 0
    kv_tokens: int = 0
    sending_count: int = 0
    receiving_count: int = 0

    def queue_seconds(self, now_seconds: float) -> float:
        """How long a prompt that arrives now is predicted to wait before it is computed."""
        return max(0.0, self.busy_until_seconds - now_seconds)

    def takes_prefill(self, now_seconds: float, limits: Limits) -> bool:
        """Ready, of the right role and within the limits."""
        return (
            self.state is WorkerState.READY
            and self.role.prefills
            and self.busy_until_seconds - now_seconds <= limits.queue_seconds
            and self.queue_count < limits.queue_count
        )

    def takes_decode(self, kv_tokens: int, limits: Limits) -> bool:
        """Ready, of the right role, within the limits, and with room for so much more KV."""
        return (
            self.state is WorkerState.READY
            and self.role.decodes
            and self.decode_count < limits.decode_count
            and self.kv_tokens + kv_tokens <= self.kv_capacity_tokens * limits.kv_fraction
        )

    @property
    def serves_fetches(self) -> bool:
        """Whether blocks that it holds may be read from another host: also while it drains."""
        return self.state is WorkerState.READY or self.state is WorkerState.DRAINING
