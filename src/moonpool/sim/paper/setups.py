"""What the reproductions share: the traces, the cost models and the clusters of the papers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.decode import LeastTbt
from moonpool.scheduling.decode_cost import FittedDecode
from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.scheduling.routing import Admission, PrefillPolicy
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.scheduling.workers import Limits
from moonpool.sim.caches import Lru
from moonpool.sim.cluster import Caches, Cluster, Hardware, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.policies import make
from moonpool.sim.result import Objectives, Result
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import Request, read_trace

NODE_BLOCKS = 5_859  # 3 million tokens, about 1 TB of DRAM (FAST'25 section 5.2)

# Loading is hidden behind computing, layer by layer (FAST'25 section 4): prefill costs what computing costs.
PREFILL = FittedPrefill.without_load()

# The time of one decode step. A lone request takes what Fig 14 says (26.2 ms + 36 ns a KV token); the terms in the
# batch size are fitted here so that the *worst tenth* of simulated intervals has the seven values of Fig 15. The
# defaults of `FittedDecode` give that worst tenth directly for a mean batch, and would count fluctuation twice.
STEP = FittedDecode(
    fixed_seconds=24.45e-3, per_kv_token_seconds=3.6e-8, per_request_seconds=1.5e-3, per_square_seconds=0.25e-3
)
COSTS = Costs(PREFILL, STEP, SharedLink())
SERVING = Costs(FittedPrefill(), STEP, SharedLink())  # with the time to load what is cached, which Fig 14 shows

TBT_DEFINITION = (
    "TBT of a request: mean of its longest tenth of token intervals, the one after the first token included"
)
HIT_DEFINITION = "tokens of the cached prefix / prompt tokens, all requests"


@cache
def trace(name: str) -> tuple[Request, ...]:
    """A shipped trace, read once."""
    return tuple(read_trace(name))


def rate_per_second(requests: tuple[Request, ...]) -> float:
    """Mean rate of arrivals."""
    return len(requests) / requests[-1].arrival_s


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One run: a trace, workers, a policy by name; the rest as in FAST'25 section 5 unless said."""

    trace: str
    shape: str
    policy: str = "mooncake"
    costs: Costs = COSTS
    speed: float = 1.0
    node_blocks: int = NODE_BLOCKS
    objectives: Objectives = field(default_factory=Objectives)
    hardware: Hardware = field(default_factory=Hardware)
    refuse_decode: bool = False

    def run(
        self,
        *,
        admission: Admission | None = None,
        policy: PrefillPolicy | None = None,
        sample_seconds: float = 0.0,
    ) -> Result:
        """Play it; with another policy than the one of that name, if given."""
        cluster = Cluster(
            shape=Shape.parse(self.shape), caches=Caches(dram=lambda: Lru(self.node_blocks)), hardware=self.hardware
        )
        decisions = Decisions(
            prefill=policy or make(self.policy, self.costs, seed=1),
            decode=LeastTbt(self.costs.decode, refuse=self.refuse_decode),
        )
        if admission is not None:
            decisions.admission = admission
        limits = Limits(ttft_seconds=self.objectives.ttft_seconds, tbt_seconds=self.objectives.tbt_seconds)
        plan = Plan(
            costs=self.costs,
            limits=limits,
            objectives=self.objectives,
            speed=self.speed,
            sample_seconds=sample_seconds,
        )
        return Simulation(cluster, decisions, plan).run(trace(self.trace))
