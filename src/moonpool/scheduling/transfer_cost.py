"""Time to bring KV to an engine's host: over a link that others use too, or from the host's own disk."""

from __future__ import annotations

from dataclasses import dataclass

from moonpool.scheduling.workers import Worker


@dataclass(frozen=True, slots=True)
class SharedLink:
    """Latency, and a bandwidth that the transfers of one host share evenly.

    The defaults are the paper's: 320 KiB of KV a token (LLaMA3-70B, FAST'25 Table 1) and 87 GB/s measured of 4 x 200
    Gbps (Fig 12). The busier of the two ends decides; transfers that begin or end on the way are not foreseen, which
    is why the paper calls this estimate hard (FAST'25 §6).
    """

    kv_token_bytes: float = 327_680.0
    bandwidth_bytes_per_second: float = 87e9
    latency_seconds: float = 0.0
    disk_bytes_per_second: float = 6e9

    def seconds(self, tokens: int, source: Worker, target: Worker) -> float:
        """See `moonpool.scheduling.costs.TransferCost`."""
        sharers = 1 + max(source.sending_count, target.receiving_count)
        return self.latency_seconds + tokens * self.kv_token_bytes * sharers / self.bandwidth_bytes_per_second

    def disk_seconds(self, tokens: int) -> float:
        """See `moonpool.scheduling.costs.TransferCost`."""
        return tokens * self.kv_token_bytes / self.disk_bytes_per_second


class OnlineLink:
    """A shared link whose bandwidth is learnt from finished transfers (TENT's estimate, read the sane way round).

    The estimate moves by ``weight`` of the difference and stays within a tenth and ten times of the nominal one.
    """

    def __init__(self, nominal: SharedLink | None = None, *, weight: float = 0.1) -> None:
        self._nominal = SharedLink() if nominal is None else nominal
        self._weight = weight
        self.bandwidth_bytes_per_second = self._nominal.bandwidth_bytes_per_second

    def seconds(self, tokens: int, source: Worker, target: Worker) -> float:
        """See `moonpool.scheduling.costs.TransferCost`."""
        sharers = 1 + max(source.sending_count, target.receiving_count)
        payload = tokens * self._nominal.kv_token_bytes * sharers
        return self._nominal.latency_seconds + payload / self.bandwidth_bytes_per_second

    def disk_seconds(self, tokens: int) -> float:
        """See `moonpool.scheduling.costs.TransferCost`."""
        return self._nominal.disk_seconds(tokens)

    def learn(self, tokens: int, seconds: float, *, sharers: int = 1) -> bool:
        """A transfer took ``seconds`` beside ``sharers - 1`` others. False: not believed."""
        net_seconds = seconds - self._nominal.latency_seconds
        if tokens < 1 or sharers < 1 or not 0.0 < net_seconds < float("inf"):
            return False
        nominal = self._nominal.bandwidth_bytes_per_second
        observed = min(max(tokens * self._nominal.kv_token_bytes * sharers / net_seconds, nominal / 10), nominal * 10)
        self.bandwidth_bytes_per_second += self._weight * (observed - self.bandwidth_bytes_per_second)
        return True
