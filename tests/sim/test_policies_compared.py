"""The paper's comparison of four routers (FAST'25 Fig 5), and ours against everybody's."""

from __future__ import annotations

import math
from functools import cache

import pytest
from clusters import COSTS

from moonpool.scheduling.decode import LeastTbt
from moonpool.sim.caches import Lru
from moonpool.sim.cluster import Caches, Cluster, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.policies import make
from moonpool.sim.result import Distribution
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import Request, read_trace

# Average TTFT in Fig 5, 8 of 16 nodes prefilling the conversation trace.
PAPER_TTFT = {"random": 19.65, "least_loaded": 5.27, "local_prefix": 3.58, "mooncake": 3.07}

CASES = [(trace, workers, 1.0) for trace in ("conversation", "synthetic") for workers in (5, 6, 7, 8)]
CASES += [("conversation", 10, 2.0), ("synthetic", 10, 2.0)]
# Of the others those that come near; on prefill workers alone Dynamo's two forms are one.
CONTENDERS = ("least_loaded", "local_prefix", "dynamo", "llm_d", "sglang", "aibrix")


@cache
def requests(trace: str) -> tuple[Request, ...]:
    return tuple(read_trace(trace))


@cache
def ttft(policy: str, trace: str, workers: int, speed: float) -> Distribution:
    cluster = Cluster(shape=Shape(prefill=workers), caches=Caches(dram=lambda: Lru(5_859)))
    decisions = Decisions(prefill=make(policy, COSTS, seed=1), decode=LeastTbt(COSTS.decode))
    plan = Plan(costs=COSTS, speed=speed, sample_seconds=0.0)
    return Simulation(cluster, decisions, plan).run(requests(trace)).ttft


@pytest.mark.slow
def test_the_four_routers_of_the_paper_keep_their_order_and_their_ratios() -> None:
    """Ratios within a fifth; the absolute times are lower, as the paper's contain stages that the model does not."""
    means = {policy: ttft(policy, "conversation", 8, 1.0).mean for policy in PAPER_TTFT}
    assert means["random"] > means["least_loaded"] > means["local_prefix"] > means["mooncake"]
    for policy, seconds in PAPER_TTFT.items():
        paper = seconds / PAPER_TTFT["mooncake"]
        assert means[policy] / means["mooncake"] == pytest.approx(paper, rel=0.2), policy


@pytest.mark.slow
@pytest.mark.parametrize(("trace", "workers", "speed"), CASES)
def test_ours_is_at_least_as_good_as_the_best_of_the_others(trace: str, workers: int, speed: float) -> None:
    ours = ttft("moonpool", trace, workers, speed)
    others = {policy: ttft(policy, trace, workers, speed) for policy in CONTENDERS}
    assert ours.mean <= min(other.mean for other in others.values()), others
    assert ours.p99 <= min(other.p99 for other in others.values()), others


@pytest.mark.slow
def test_ours_is_better_than_algorithm_1_over_all_cases_and_nowhere_worse_by_a_percent() -> None:
    """Algorithm 1 is ours too. One block evicted sooner changes all that follows, so single cases go either way."""
    ratios = {case: _ratios(*case) for case in CASES}
    for column in (0, 1):
        assert math.fsum(math.log(ratio[column]) for ratio in ratios.values()) <= 0.0, ratios
    assert all(mean <= 1.01 and p99 <= 1.01 for mean, p99 in ratios.values()), ratios


def _ratios(trace: str, workers: int, speed: float) -> tuple[float, float]:
    ours, theirs = (ttft(policy, trace, workers, speed) for policy in ("moonpool", "mooncake"))
    return ours.mean / theirs.mean, ours.p99 / theirs.p99
