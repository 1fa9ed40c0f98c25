"""A whole simulation by plain values, as the command line gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moonpool.errors import UsageError
from moonpool.scheduling.admission import AdmitAll, EarlyRejection, PredictedLoad, TtftObjective
from moonpool.scheduling.costs import Costs
from moonpool.scheduling.decode import LeastTbt
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.routing import Admission
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.scheduling.workers import Limits
from moonpool.sim import policies
from moonpool.sim.caches import make_cache
from moonpool.sim.cluster import Caches, Cluster, Hardware, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.result import Objectives, Result
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import BLOCK_TOKENS, Request

ADMISSIONS: dict[str, Callable[[Costs], Admission]] = {
    "none": lambda costs: AdmitAll(),
    "ttft": lambda costs: TtftObjective(),
    "early": lambda costs: EarlyRejection(costs.decode),
    "predicted": lambda costs: PredictedLoad(costs.decode),
}
PAPER_KV_BYTES_PER_TOKEN = 327_680  # LLaMA3-70B
PAPER_DRAM_TOKENS = 3_000_000  # about a terabyte a node


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. The defaults are the machines of the Mooncake paper (8 x A800 with LLaMA3-70B a worker)."""

    workers: str = "10P6D"
    policy: str = "moonpool"
    admission: str = "none"
    eviction: str = "lru"
    speed: float = 1.0
    seed: int = 0
    dram_bytes: int = PAPER_DRAM_TOKENS * PAPER_KV_BYTES_PER_TOKEN
    """Of each worker that prefills, for KV."""
    disk_bytes: int = 0
    kv_bytes_per_token: float = PAPER_KV_BYTES_PER_TOKEN
    block_tokens: int = BLOCK_TOKENS
    ttft_s: float = 30.0
    tbt_s: float = 0.1
    sample_s: float = 10.0

    def blocks_of(self, size_bytes: int) -> int:
        """Whole blocks of KV that fit into so many bytes."""
        return int(size_bytes // (self.kv_bytes_per_token * self.block_tokens))


def simulate(scenario: Scenario, requests: Iterable[Request]) -> Result:
    """Play the requests to their end. The same scenario and requests give the same result, byte for byte.

    Raises:
        UsageError: a name in the scenario is unknown, or a number makes no sense.
    """
    dram_blocks, disk_blocks = scenario.blocks_of(scenario.dram_bytes), scenario.blocks_of(scenario.disk_bytes)
    if dram_blocks < 1:
        raise UsageError(f"{scenario.dram_bytes} bytes of DRAM hold no block of {scenario.block_tokens} tokens")
    if scenario.admission not in ADMISSIONS:
        raise UsageError(f"no admission {scenario.admission!r}: one of {', '.join(ADMISSIONS)} expected")
    if not scenario.speed > 0:
        raise UsageError(f"speed {scenario.speed:g}: more than 0 expected")
    costs = costs_of(scenario)
    shape = Shape.parse(scenario.workers)
    admission = ADMISSIONS[scenario.admission](costs)
    if scenario.admission in {"early", "predicted"} and not shape.decode + shape.coupled:
        admission = TtftObjective()  # nobody decodes, so there is no such load
    cluster = Cluster(
        shape=shape,
        caches=Caches(
            dram=lambda: make_cache(scenario.eviction, dram_blocks),
            disk=lambda: make_cache(scenario.eviction, disk_blocks) if disk_blocks else None,
            block_tokens=scenario.block_tokens,
        ),
        hardware=Hardware(kv_bytes_per_token=round(scenario.kv_bytes_per_token)),
    )
    decisions = Decisions(
        prefill=policies.make(scenario.policy, costs, seed=scenario.seed),
        decode=LeastTbt(costs.decode, refuse=scenario.admission == "ttft"),
        admission=admission,
    )
    plan = Plan(
        costs=costs,
        label=f"{scenario.workers} {scenario.policy}",
        objectives=Objectives(ttft_seconds=scenario.ttft_s, tbt_seconds=scenario.tbt_s),
        limits=Limits(ttft_seconds=scenario.ttft_s, tbt_seconds=scenario.tbt_s),
        speed=scenario.speed,
        sample_seconds=scenario.sample_s,
    )
    return Simulation(cluster, decisions, plan).run(requests)


def costs_of(scenario: Scenario) -> Costs:
    """The paper's machine; transfers by this model's size of KV."""
    return Costs(FittedPrefill.without_load(), FittedDecode(), SharedLink(kv_token_bytes=scenario.kv_bytes_per_token))
