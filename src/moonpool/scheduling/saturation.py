"""What to say when no worker may be picked."""

from __future__ import annotations

from moonpool.scheduling.fleet import Fleet
from moonpool.scheduling.routing import Refusal, Rejection

# Asking again sooner than this helps nobody; without any worker there is nothing to go by.
RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_NO_WORKER = 5.0


def no_prefill_worker(fleet: Fleet, now_seconds: float) -> Rejection:
    """Nobody takes prompts: none is ready, or each is past its limits (then: when the first is back within them)."""
    shortest = fleet.shortest_queue_seconds(now_seconds)
    if shortest is None:
        return Rejection(Refusal.NO_WORKER, RETRY_SECONDS_NO_WORKER)
    return Rejection(Refusal.OVERLOADED, max(RETRY_SECONDS_MIN, shortest - fleet.limits.queue_seconds))


def no_decode_worker(fleet: Fleet) -> Rejection:
    """Nobody takes a request for decoding: none is ready, or none has room."""
    if fleet.decode_worker_count == 0:
        return Rejection(Refusal.NO_WORKER, RETRY_SECONDS_NO_WORKER)
    return Rejection(Refusal.KV_FULL, RETRY_SECONDS_MIN)
