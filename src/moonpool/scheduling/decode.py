"""Which decode worker a request joins."""

from __future__ import annotations

from moonpool.scheduling.costs import DecodeCost
from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import DecodePlacement, Refusal, Rejection, Request
from moonpool.scheduling.saturation import RETRY_SECONDS_MIN, no_decode_worker


class LeastTbt:
    """The worker where the TBT is least once the request has joined: equal KV and equal request counts over workers.

    Needs a fleet whose ``decode_load`` is that of the same cost model, so that only the first with room is looked at.
    With ``refuse`` a request that would push even that worker past ``limits.tbt_seconds`` is turned away: the paper's
    base line tests the load before each stage (arXiv 2407.00079 §7), and prefill done by then is wasted.
    """

    def __init__(self, cost: DecodeCost, *, refuse: bool = False) -> None:
        self._cost = cost
        self._refuse = refuse

    def place(self, request: Request, fleet: Fleet, now_seconds: float) -> DecodePlacement | Rejection:
        """See `moonpool.scheduling.routing.DecodePolicy`."""
        kv_tokens = request.tokens + request.output_tokens
        for worker in fleet.decode_workers(kv_tokens):
            tbt_seconds = self._cost.tbt_seconds(worker.decode_count + 1, worker.kv_tokens + request.tokens)
            if self._refuse and tbt_seconds > fleet.limits.tbt_seconds:
                return Rejection(Refusal.TBT, RETRY_SECONDS_MIN)
            return DecodePlacement(worker.worker_id, tbt_seconds)
        return no_decode_worker(fleet)
