"""Fault 26: load against cache. No policy of ours piles work on a worker for the sake of what it holds."""

from __future__ import annotations

import itertools

import pytest
from clusters import COSTS, run

from moonpool.scheduling.costs import Costs
from moonpool.scheduling.policy import CostPolicy
from moonpool.scheduling.routing import PrefillPolicy
from moonpool.scheduling.transfer_cost import SharedLink
from moonpool.sim.caches import Lru
from moonpool.sim.cluster import Caches, Cluster, Shape
from moonpool.sim.live import Decisions
from moonpool.sim.policies import make
from moonpool.sim.result import Result
from moonpool.sim.simulation import Plan, Simulation
from moonpool.sim.trace import Request, read_trace

OURS = ("moonpool", "mooncake")
BLOCK = 512


def simulate(requests: list[Request], policy: PrefillPolicy, *, workers: int, cache_blocks: list[int]) -> Result:
    """Prefill engines with caches of different sizes, the first size for the first engine."""
    sizes = itertools.cycle(cache_blocks)
    cluster = Cluster(shape=Shape(prefill=workers), caches=Caches(dram=lambda: Lru(next(sizes))))
    return Simulation(cluster, Decisions(prefill=policy), Plan(costs=COSTS)).run(requests)


def unique(index: int, *, at: float, blocks: int) -> Request:
    first = 1_000_000 + 1_000 * index
    return Request(at, blocks * BLOCK, 1, tuple(range(first, first + blocks)))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("busy_cache_first", [True, False])
def test_unique_requests_go_to_the_idle_worker_whatever_the_size_of_its_cache(
    name: str, busy_cache_first: bool
) -> None:
    cache_blocks = [20_000, 50] if busy_cache_first else [50, 20_000]
    long = unique(0, at=0.0, blocks=200)
    short = [unique(1 + index, at=0.5 + 0.5 * index, blocks=2) for index in range(20)]
    result = simulate([long, *short], make(name, COSTS), workers=2, cache_blocks=cache_blocks)
    rows = list(result.table.rows())
    busy = rows[0].prefill_worker
    assert rows[0].prefill_seconds > 10.5, "the first engine is busy as long as the others arrive"
    assert {row.prefill_worker for row in rows[1:]} == {1 - busy}
    for row in rows[1:]:
        assert row.ttft == pytest.approx(row.prefill_seconds)


@pytest.mark.parametrize("name", OURS)
def test_sixteen_streams_of_one_prefix_spread_over_four_workers(name: str) -> None:
    """Nobody waits longer than the prefix takes to compute, and all four work; longest prefix leaves three idle."""
    prefix = tuple(range(40))
    streams = [
        Request(
            turn * 2.0,
            60 * BLOCK,
            1,
            (*prefix, *range(10_000 * (1 + stream) + 20 * turn, 10_000 * (1 + stream) + 20 * turn + 20)),
        )
        for turn in range(10)
        for stream in range(16)
    ]
    spread, piled = (
        simulate(streams, make(policy, COSTS), workers=4, cache_blocks=[5_859]) for policy in (name, "longest_prefix")
    )
    counts = [worker.prompt_count for worker in spread.workers]
    assert max(counts) <= 1.25 * min(counts), counts
    assert sorted(worker.prompt_count for worker in piled.workers) == [0, 0, 0, 160]
    assert spread.ttft.mean < piled.ttft.mean / 4


def test_without_fetches_a_prefix_is_queued_for_until_that_costs_more_than_it_saves() -> None:
    """No link between workers: the sixth request computes the prefix anew rather than wait for its holder."""
    islands = Costs(COSTS.prefill, COSTS.decode, SharedLink(bandwidth_bytes_per_second=1.0))
    prefix = tuple(range(40))
    seed = Request(0.0, 40 * BLOCK, 1, prefix)
    burst = [
        Request(10.0, 50 * BLOCK, 1, (*prefix, *range(1_000 * stream, 1_000 * stream + 10))) for stream in range(1, 17)
    ]
    result = simulate([seed, *burst], CostPolicy(islands), workers=4, cache_blocks=[5_859])
    rows = list(result.table.rows())
    holder = rows[0].prefill_worker
    saved = COSTS.prefill.seconds(40 * BLOCK, 0)
    tail = COSTS.prefill.seconds(50 * BLOCK, 40 * BLOCK)
    stayed = [row for row in rows[1:] if row.prefill_worker == holder]
    first_to_leave = next(index for index, row in enumerate(rows[1:]) if row.prefill_worker != holder)
    assert (first_to_leave - 1) * tail <= saved <= (first_to_leave + 1) * tail
    assert len(stayed) < 16
    assert result.ttft.highest < 16 * tail + 0.1


@pytest.mark.parametrize(("name", "collapses"), [("longest_prefix", True), ("moonpool", False), ("mooncake", False)])
def test_pure_longest_prefix_collapses_on_the_conversation_trace_and_ours_does_not(name: str, collapses: bool) -> None:
    """Every request of the trace shares block 0: whoever computes the first gets them all."""
    result = run(itertools.islice(read_trace("conversation"), 3_000), "8P", policy=name)
    most = max(worker.prompt_count for worker in result.workers) / 3_000
    if collapses:
        assert most > 0.95
        assert result.ttft.mean > 200.0
    else:
        assert most < 0.2
        assert result.ttft.mean < 2.0
