"""Hot-spot replication: copies of a much wanted prefix before its holders are overrun, bounded and counted.

Routing copies already (every fetch leaves one, as in Mooncake's Algorithm 1), but only once a queue has formed. Here a
prefix whose demand would keep its holders busy with prefill gets another holder ahead of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Prefixes


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Bounds of `HotSpots`.

    Attributes:
        half_life_seconds: how fast past demand is forgotten.
        busy_share: holders together should spend no more than this share of their time on the prefix's requests.
        copies_max: a prefix never gets more holders than this by replication.
        tokens_min: shorter prefixes are computed sooner than they are worth copying.
        prefix_count_max: so many prefixes are watched; the least wanted is forgotten for a new one.
        interval_seconds: a prefix gets at most one new copy in that time: the last one must show its effect first.
    """

    half_life_seconds: float = 60.0
    busy_share: float = 0.3
    copies_max: int = 16
    tokens_min: int = 1024
    prefix_count_max: int = 4096
    interval_seconds: float = 5.0


class Replication(NamedTuple):
    """Copy the first ``tokens`` of the prefix from one worker to another."""

    prefix: int
    source_id: int
    target_id: int
    tokens: int


@dataclass(slots=True)
class _Demand:
    busy_seconds: float = 0.0
    at_seconds: float = 0.0
    not_before_seconds: float = -math.inf


class HotSpots:
    """Watches how much prefill time is asked of each prefix, and says when one needs another holder."""

    def __init__(self, settings: ReplicationSettings | None = None) -> None:
        self.settings = ReplicationSettings() if settings is None else settings
        self.replication_count = 0
        self.forgotten_count = 0
        self._demands: dict[int, _Demand] = {}

    def requested(self, prefix: int, *, prefill_seconds: float, now_seconds: float) -> None:
        """A request with this (hit) prefix was placed; its uncached rest takes so long to compute."""
        demand = self._demands.get(prefix)
        if demand is None:
            self._make_room(now_seconds)
            demand = self._demands[prefix] = _Demand(at_seconds=now_seconds)
        demand.busy_seconds = self._decayed(demand, now_seconds) + prefill_seconds
        demand.at_seconds = now_seconds

    def demand(self, prefix: int, now_seconds: float) -> float:
        """Engines' worth of prefill that requests with this prefix ask for at present (1.0: one, all the time)."""
        demand = self._demands.get(prefix)
        if demand is None:
            return 0.0
        mean_life_seconds = self.settings.half_life_seconds / math.log(2.0)
        return self._decayed(demand, now_seconds) / mean_life_seconds

    def plan(self, prefix: int, prefixes: Prefixes, fleet: Fleet, *, now_seconds: float) -> Replication | None:
        """The copy to make now, if any: to the least loaded worker that does not hold the prefix."""
        settings = self.settings
        demand = self._demands.get(prefix)
        if demand is None or now_seconds < demand.not_before_seconds:
            return None
        holders = prefixes.longest(settings.copies_max)
        if not holders or holders[0].tokens < settings.tokens_min:
            return None
        whole = [hit for hit in holders if hit.tokens == holders[0].tokens]
        wanted = math.ceil(self.demand(prefix, now_seconds) / settings.busy_share)
        source = next((hit for hit in whole if fleet.workers[hit.worker_id].serves_fetches), None)
        if source is None or len(whole) >= min(wanted, settings.copies_max):
            return None
        holding = {hit.worker_id for hit in whole}
        for worker in fleet.prefill_workers(now_seconds):
            if worker.worker_id not in holding:
                demand.not_before_seconds = now_seconds + settings.interval_seconds
                self.replication_count += 1
                return Replication(prefix, source.worker_id, worker.worker_id, source.tokens)
        return None

    def _decayed(self, demand: _Demand, now_seconds: float) -> float:
        age = max(0.0, now_seconds - demand.at_seconds)
        return demand.busy_seconds * math.exp2(-age / self.settings.half_life_seconds)

    def _make_room(self, now_seconds: float) -> None:
        if len(self._demands) < self.settings.prefix_count_max:
            return
        # An eighth at a time: the scan is paid once for many newcomers.
        by_demand = sorted(self._demands, key=lambda prefix: self._decayed(self._demands[prefix], now_seconds))
        for prefix in by_demand[: max(1, len(by_demand) // 8)]:
            del self._demands[prefix]
            self.forgotten_count += 1
