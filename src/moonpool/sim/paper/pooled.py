"""The store of the paper's network experiment: KV lies anywhere in the pool, so that every hit crosses the network."""

from __future__ import annotations

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Grounds, Placement, Rejection, Request
from moonpool.scheduling.saturation import no_prefill_worker


class Pooled:
    """The least loaded worker, with all of the cached prefix fetched from the others in turn, its own part too."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._turn = 0

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> Placement | Rejection:
        """See `moonpool.scheduling.routing.PrefillPolicy`."""
        worker = next(fleet.prefill_workers(now_seconds), None)
        if worker is None:
            return no_prefill_worker(fleet, now_seconds)
        longest = request.prefixes.longest(1)
        tokens = longest[0].tokens if longest else 0
        self._turn += 1
        others = [other for other in fleet.workers if other is not worker and other.serves_fetches]
        source = others[self._turn % len(others)] if tokens else None
        load_seconds = self._costs.transfer.seconds(tokens, source, worker) if source is not None else 0.0
        prefill_seconds = self._costs.prefill.seconds(request.tokens, tokens)
        queue_seconds = worker.queue_seconds(now_seconds)
        return Placement(
            worker_id=worker.worker_id,
            cached_tokens=tokens,
            source_id=source.worker_id if source is not None else None,
            fetched_tokens=tokens,
            queue_seconds=queue_seconds,
            load_seconds=load_seconds,
            prefill_seconds=prefill_seconds,
            ttft_seconds=max(queue_seconds, load_seconds) + prefill_seconds,
            grounds=Grounds.FETCHED_PREFIX if tokens else Grounds.LEAST_LOADED,
        )
