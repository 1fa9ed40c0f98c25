"""Our own prefill routing: least cost over the few workers that can be best, with regard for those who come next."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.estimate import Estimator
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Hit, Placement, Rejection, Request
from moonpool.scheduling.saturation import no_prefill_worker
from moonpool.scheduling.workers import Worker

_NOTHING = Hit(0, 0)


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
    spare_count: int = 4
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
        hits = request.prefixes.longest(self.settings.holder_count)
        longest = hits[0] if hits else _NOTHING
        # One queue more than followers, so that their waiting is right wherever this request goes.
        queue_count = max(self.settings.spare_count, self.settings.followers + 1)
        shortest = fleet.least_loaded(now_seconds, count=queue_count, turn=self._turn)
        spare = shortest[: self.settings.spare_count]
        options = self._options(request, fleet, now_seconds, hits=hits, spare=spare)
        if not options:
            return no_prefill_worker(fleet, now_seconds)
        best = self._best(options, {worker.worker_id: worker.queue_seconds(now_seconds) for worker in shortest})
        placed = None
        if best.fetches:
            placed = self._estimator.fetched(request, fleet, now_seconds, worker=best.worker, held=(best.own, longest))
        if placed is None:
            placed = self._estimator.local(request, best.worker, best.own, now_seconds=now_seconds)
        self._chosen_turn[placed.worker_id] = self._turn
        self._recent.add(placed, now_seconds)
        return placed

    def _options(
        self, request: Request, fleet: Fleet, now_seconds: float, *, hits: Sequence[Hit], spare: list[Worker]
    ) -> list[_Option]:
        """What each worker worth looking at would take, as bare numbers: this is run for every request of a fleet."""
        estimator, limits = self._estimator, fleet.limits
        longest = hits[0] if hits else _NOTHING
        price = self.settings.copy_price * (1.0 - fleet.idle_count(now_seconds) / max(1, fleet.prefill_count))
        held = {hit.worker_id: hit for hit in hits if fleet.workers[hit.worker_id].takes_prefill(now_seconds, limits)}
        for worker in spare:
            if worker.worker_id not in held:
                held[worker.worker_id] = request.prefixes.of(worker.worker_id)
        prefill = _Prefill(estimator, request.tokens)
        options = []
        for worker_id, own in held.items():
            worker = fleet.workers[worker_id]
            queue_seconds = max(0.0, worker.busy_until_seconds - now_seconds)
            if own.disk_tokens:
                local = estimator.local(request, worker, own, now_seconds=now_seconds)
                computing, ttft = local.prefill_seconds, local.ttft_seconds
            else:
                computing = prefill.seconds(own.tokens) * worker.slowdown
                ttft = queue_seconds + computing
            cost, fetches = ttft, False
            remaining = prefill.seconds(longest.tokens) * worker.slowdown
            # What would be fetched and computed later than it is computed alone needs no look at the link.
            if longest.tokens > own.tokens - own.disk_tokens and queue_seconds + remaining < ttft:
                load_seconds = estimator.fetch_seconds(fleet, worker, own=own, best=longest)
                if load_seconds is not None and max(queue_seconds, load_seconds) + remaining < ttft:
                    ttft, fetches = max(queue_seconds, load_seconds) + remaining, True
                    cost = ttft + price * (computing - remaining)
            options.append(_Option(cost, ttft, worker, own, fetches))
        return options

    def _best(self, options: list[_Option], queues: dict[int, float]) -> _Option:
        patience = max(self._recent.tail_seconds, min(option.ttft_seconds for option in options))
        regard, chosen_turn = self.settings.regard, self._chosen_turn
        # Wherever a request goes, the followers wait at least as long as if it had not come: enough to stop looking.
        least_wait = self._waiting(queues, None)
        options.sort(key=_by_cost)
        best = options[0]
        best_score = (math.inf, 0)
        for option in options:
            if option.cost_seconds + regard * least_wait > best_score[0]:
                break
            if option.ttft_seconds > patience:
                continue
            worker_id = option.worker.worker_id
            wait = self._waiting(queues, option) if worker_id in queues else least_wait
            score = (option.cost_seconds + regard * wait, chosen_turn.get(worker_id, 0))
            if score < best_score:
                best, best_score = option, score
        return best

    def _waiting(self, queues: dict[int, float], option: _Option | None) -> float:
        """Seconds that the followers would wait together, each taking the shortest queue, after this placement."""
        free_at = list(queues.values())
        if option is not None:
            free_at.remove(queues[option.worker.worker_id])
            free_at.append(option.ttft_seconds)
        heapq.heapify(free_at)
        gap, typical = self._recent.gap_seconds, self._recent.typical_seconds
        total = at = 0.0
        for _ in range(self.settings.followers if free_at else 0):
            at += gap
            start = max(at, free_at[0])
            total += start - at
            heapq.heapreplace(free_at, start + typical)
        return total


class _Option(NamedTuple):
    """One worker, and what the prompt would take there; the cost is the TTFT and the price of a copy."""

    cost_seconds: float
    ttft_seconds: float
    worker: Worker
    own: Hit
    fetches: bool


def _by_cost(option: _Option) -> float:
    return option.cost_seconds


class _Prefill:
    """Prefill of one prompt by what is held of it: few lengths, many workers."""

    def __init__(self, estimator: Estimator, tokens: int) -> None:
        self._estimator = estimator
        self._tokens = tokens
        self._known: dict[int, float] = {}

    def seconds(self, held_tokens: int) -> float:
        known = self._known.get(held_tokens)
        if known is None:
            known = self._estimator.prefill(self._tokens, held_tokens)[1]
            self._known[held_tokens] = known
        return known


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
