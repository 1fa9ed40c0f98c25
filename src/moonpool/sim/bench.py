"""How fast the simulator is, beside what this interpreter does at all: for `moonpool sim bench`."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Iterable
from typing import NamedTuple

from moonpool.scheduling.costs import mooncake_costs
from moonpool.scheduling.decode import LeastTbt
from moonpool.sim.caches import Lru
from moonpool.sim.cluster import Caches, Cluster, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.loop import EventLoop
from moonpool.sim.policies import make
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import Request, read_trace
from moonpool.sim.workloads import MultiTurn

NODE_BLOCKS = 5_859
EMPTY_EVENTS = 200_000
SESSIONS_PER_WORKER = 0.03  # a second: about two thirds of what the decode engines of 300P700D can do


class Speed(NamedTuple):
    """One run. `cpu_seconds` is this process's own time, without reading or making the requests."""

    what: str
    request_count: int
    cpu_seconds: float
    event_count: int
    peak_bytes: int
    digest: str
    empty_event_seconds: float  # what the same number of events take that do nothing: the limit of this machine

    @property
    def times_empty(self) -> float:
        """How much more than the empty events."""
        return self.cpu_seconds / self.empty_event_seconds


def conversation_speed(policy: str = "moonpool") -> Speed:
    """The conversation trace on eight prefill engines."""
    requests = list(read_trace("conversation"))
    return _measured(f"conversation trace, 8P, {policy}", requests, shape="8P", policy=policy)


def scale_speed(request_count: int, shape: str, policy: str = "moonpool") -> Speed:
    """Conversations of several turns on many workers."""
    workers = Shape.parse(shape)
    count = workers.prefill + workers.decode + workers.coupled
    requests = MultiTurn(request_count=request_count, sessions_per_s=SESSIONS_PER_WORKER * count).requests(1)
    return _measured(f"{request_count} requests, {shape}, {policy}", requests, shape=shape, policy=policy)


def _measured(what: str, requests: Iterable[Request], *, shape: str, policy: str) -> Speed:
    costs = mooncake_costs()
    cluster = Cluster(shape=Shape.parse(shape), caches=Caches(dram=lambda: Lru(NODE_BLOCKS)))
    decisions = Decisions(prefill=make(policy, costs, seed=1), decode=LeastTbt(costs.decode))
    simulation = Simulation(cluster, decisions, Plan(costs=costs))
    gc.freeze()  # the requests are no garbage: do not look at them again and again
    start = time.process_time()
    result = simulation.run(requests)
    cpu_seconds = time.process_time() - start
    gc.unfreeze()
    return Speed(
        what=what,
        request_count=len(result.table),
        cpu_seconds=cpu_seconds,
        event_count=result.event_count,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        digest=result.digest,
        empty_event_seconds=_empty_event_seconds() * result.event_count,
    )


def _empty_event_seconds() -> float:
    """What one event costs whose action does nothing, with a heap that is never large."""
    loop = EventLoop()

    def again(left: int) -> None:
        if left:
            loop.at(loop.now + 1.0, again, left - 1)

    loop.at(0.0, again, EMPTY_EVENTS)
    start = time.process_time()
    loop.run()
    return (time.process_time() - start) / EMPTY_EVENTS
