"""What the tests of the simulator share: runs in one line."""

from __future__ import annotations

from collections.abc import Iterable

from moonpool.scheduling.costs import mooncake_costs
from moonpool.scheduling.decode import LeastTbt
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.sim.caches import Lru
from moonpool.sim.cluster import Caches, Cluster, FleetEvent, Hardware, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.policies import make
from moonpool.sim.result import Result
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import Request

COSTS = mooncake_costs(FittedPrefill.without_load())


def run(
    requests: Iterable[Request],
    shape: str,
    *,
    policy: str = "mooncake",
    events: tuple[FleetEvent, ...] = (),
    hardware: Hardware | None = None,
) -> Result:
    """The requests on a cluster of that shape with caches of 3 million tokens (5,859 blocks) a worker."""
    cluster = Cluster(
        shape=Shape.parse(shape), caches=Caches(dram=lambda: Lru(5_859)), events=events, hardware=hardware or Hardware()
    )
    decisions = Decisions(prefill=make(policy, COSTS, seed=1), decode=LeastTbt(COSTS.decode))
    return Simulation(cluster, decisions, Plan(costs=COSTS)).run(requests)
