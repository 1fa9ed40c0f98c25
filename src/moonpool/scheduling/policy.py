"""Our own prefill routing: least cost over the few workers that can be best, with regard for those who come next."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Hit, Placement, Rejection, Request
from moonpool.scheduling.saturation import no_prefill_worker


@dataclass(frozen=True, slots=True)
class CostPolicySettings:
    """What `CostPolicy` weighs.

    Attributes:
        holder_count: how many holders of the longest prefixes are looked at.
        spare_count: how many of the least loaded workers are looked at.
        copy_price: what a fetched copy costs the cache that it goes to, as a share of the prefill time that it saves:
            it pushes out blocks that somebody may want again. Falls with the share of workers that are busy: where
            many are idle, computing those again delays nobody.
        followers: how many typical requests are imagined to come after this one, at the present rate.
        regard: the weight of a second of their waiting against a second of this request's.
        tail_share: a request whose first token would come later than this share of the recent ones does not step back
            for others.
        fetch_deadline_seconds: a longer fetch is not begun.
    """

    holder_count: int = 16
    spare_count: int = 8
    copy_price: float = 0.2
    followers: int = 8
    regard: float = 0.3
    tail_share: float = 0.9
    fetch_deadline_seconds: float = 10.0


class CostPolicy:
    """Places a prompt where ``ttft + copy + regard · (waiting of the followers)`` is least.

    A worker without any of the prefix can only be best if it is among the least loaded, so a thousand workers cost no
    more than ``holder_count + spare_count``. A long prompt takes the second shortest queue when short ones would
    otherwise queue behind it; but never one that is in the tail already. Equal scores go to the worker chosen longest
    ago. Without any estimate of the future it is Algorithm 1 with a true choice between fetching and computing.
    """

    def __init__(self, costs: Costs, settings: CostPolicySettings | None = None) -> None:
        self.settings = CostPolicySettings() if settings is None else settings
        self._estimator = Estimator(costs, self.settings.fetch_deadline_seconds)
        self._recent = Recent(self.settings.tail_share)
        self._turn = 0
        self._chosen_turn: dict[int, int] = {}

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> Placement | Rejection:
        """See `moonpool.scheduling.routing.PrefillPolicy`."""
        self._turn += 1
        placements, queues = self._candidates(request, fleet, now_seconds)
        if not placements:
            return no_prefill_worker(fleet, now_seconds)
        chosen = self._best(placements, queues)
        self._chosen_turn[chosen.worker_id] = self._turn
        self._recent.add(chosen, now_seconds)
        return chosen

    def _candidates(
        self, request: Request, fleet: Fleet, now_seconds: float
    ) -> tuple[list[tuple[Placement, float]], dict[int, float]]:
        """Placements with the price of their copies, and the queues of the least loaded workers."""
        settings, prefixes, estimator = self.settings, request.prefixes, self._estimator
        hits = prefixes.longest(settings.holder_count)
        longest = hits[0] if hits else None
        # One queue more than followers, so that their waiting is right wherever this request goes.
        spare_count = max(settings.spare_count, settings.followers + 1)
        spare = fleet.least_loaded(now_seconds, count=spare_count, turn=self._turn)
        queues = {worker.worker_id: worker.queue_seconds(now_seconds) for worker in spare}
        busy_share = 1.0 - fleet.idle_count(now_seconds) / max(1, fleet.prefill_count)
        held: dict[int, Hit] = {hit.worker_id: hit for hit in hits}
        for worker_id in queues:
            if worker_id not in held:
                held[worker_id] = prefixes.of(worker_id)
        placements = []
        for worker_id, own in held.items():
            worker = fleet.workers[worker_id]
            if not worker.takes_prefill(now_seconds, fleet.limits):
                continue
            placed = estimator.local(request, worker, own, now_seconds=now_seconds)
            price = 0.0
            if longest is not None and longest.tokens > own.tokens:
                fetched = estimator.fetched(request, fleet, now_seconds, worker=worker, held=(own, longest))
                if fetched is not None and fetched.ttft_seconds < placed.ttft_seconds:
                    price = settings.copy_price * busy_share * (placed.prefill_seconds - fetched.prefill_seconds)
                    placed = fetched
            placements.append((placed, price))
        return placements, queues

    def _best(self, placements: list[tuple[Placement, float]], queues: dict[int, float]) -> Placement:
        soonest = min(placed.ttft_seconds for placed, _ in placements)
        patience = max(soonest, self._recent.tail_seconds)
        unplaced_wait = self._waiting(queues, None)
        best: Placement | None = None
        best_score = (0.0, 0)
        for placed, price in placements:
            if placed.ttft_seconds > patience:
                continue
            wait = self._waiting(queues, placed) if placed.worker_id in queues else unplaced_wait
            score = (placed.ttft_seconds + price + self.settings.regard * wait, self._chosen(placed))
            if best is None or score < best_score:
                best, best_score = placed, score
        assert best is not None  # the soonest is always within patience
        return best

    def _chosen(self, placed: Placement) -> int:
        return self._chosen_turn.get(placed.worker_id, 0)

    def _waiting(self, queues: dict[int, float], placed: Placement | None) -> float:
        """Seconds that the followers would wait together, each taking the shortest queue, after this placement."""
        free_at = sorted(
            placed.ttft_seconds if placed is not None and worker_id == placed.worker_id else wait
            for worker_id, wait in queues.items()
        )
        total = at = 0.0
        for _ in range(self.settings.followers if free_at else 0):
            at += self._recent.gap_seconds
            start = max(at, free_at.pop(0))
            total += start - at
            bisect.insort(free_at, start + self._recent.typical_seconds)
        return total


class Recent:
    """What the last few hundred placements were like: the gaps, the typical prefill, where the tail begins."""

    def __init__(self, tail_share: float, *, memory: int = 500, every: int = 50) -> None:
        self.gap_seconds = 0.0
        self.typical_seconds = 0.0
        self.tail_seconds = 0.0
        self._tail_share = tail_share
        self._every = every
        self._count = 0
        self._prefills: deque[float] = deque(maxlen=memory)
        self._ttfts: deque[float] = deque(maxlen=memory)
        self._times: deque[float] = deque(maxlen=memory)

    def add(self, placed: Placement, now_seconds: float) -> None:
        """A placement was chosen now."""
        self._times.append(now_seconds)
        self.gap_seconds = (now_seconds - self._times[0]) / len(self._times)
        self._prefills.append(placed.prefill_seconds)
        self._ttfts.append(placed.ttft_seconds)
        self._count += 1
        if self._count % self._every == 0:
            self.typical_seconds = sorted(self._prefills)[len(self._prefills) // 2]
            self.tail_seconds = sorted(self._ttfts)[int(len(self._ttfts) * self._tail_share)]
