"""Workloads: reproducible, well formed, and like what they stand for."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import mean, median

import pytest

from moonpool.errors import UsageError
from moonpool.sim.caches import BlockCache, Fifo, Lru
from moonpool.sim.caches.hit_rate import replay
from moonpool.sim.trace import BLOCK_TOKENS, Request, read_trace
from moonpool.sim.workloads import WORKLOADS, Agentic, MultiTurn, Poisson, make_workload

# LRU and FIFO on the arXiv trace: published hit tokens of the last half (97,486,941), precomputed by kvcache-blog.
CAPACITIES = (1_011, 2_989, 5_886, 9_777, 19_555, 30_232, 50_006, 100_013)
PUBLISHED: dict[type[BlockCache], tuple[float, ...]] = {
    Lru: (0.365, 0.380, 0.432, 0.488, 0.547, 0.573, 0.588, 0.590),
    Fifo: (0.354, 0.375, 0.427, 0.462, 0.520, 0.544, 0.568, 0.585),
}


@cache
def stand_in() -> list[Request]:
    return list(read_trace("toolagent-standin"))


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_requests(name: str) -> None:
    made = make_workload(name, 500, seed=3)
    assert made == make_workload(name, 500, seed=3)
    assert made != make_workload(name, 500, seed=4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_requests_are_those_of_a_trace(name: str) -> None:
    made = make_workload(name, 700, seed=1)
    assert len(made) == 700
    assert [request.arrival_s for request in made] == sorted(request.arrival_s for request in made)
    parents: dict[int, int | None] = {}
    for request in made:
        assert len(request.block_ids) == -(-request.input_tokens // BLOCK_TOKENS)
        assert request.output_tokens >= 1
        for parent, block in zip((None, *request.block_ids), request.block_ids, strict=False):
            assert parents.setdefault(block, parent) == parent, "a block id covers one prefix only"


def test_the_stand_in_has_the_published_sizes_and_roots() -> None:
    requests = stand_in()
    inputs = [request.input_tokens for request in requests]
    assert len(requests) == 23_608
    assert mean(inputs) == pytest.approx(8_590, rel=0.03)
    assert median(inputs) == pytest.approx(6_346, rel=0.05)
    roots = Counter(request.block_ids[0] for request in requests).most_common()
    assert [count for _, count in roots] == pytest.approx([10_938, 9_203, 3_449], rel=0.05)
    assert sum(len(request.block_ids) for request in requests) == pytest.approx(409_356, rel=0.03)
    assert len({block for request in requests for block in request.block_ids}) == pytest.approx(183_166, rel=0.03)


@pytest.mark.parametrize("policy", PUBLISHED, ids=lambda policy: policy.__name__)
def test_the_stand_in_matches_the_published_curve_within_three_points(policy: type[Lru | Fifo]) -> None:
    for capacity, published in zip(CAPACITIES, PUBLISHED[policy], strict=True):
        found = replay(stand_in(), policy(capacity)).tokens_of_last_half
        assert found.rate == pytest.approx(published, abs=0.03), f"{capacity} blocks: {found}, published {published}"


def test_half_of_a_poisson_prompt_is_shared() -> None:
    found = replay(Poisson(request_count=3_000).requests(), Lru(10**9)).tokens
    assert found.rate == pytest.approx(0.5, abs=0.06), found


def test_a_turn_begins_with_the_turn_before_it() -> None:
    requests = MultiTurn(request_count=800, system_prompts=1).requests()
    assert replay(requests, Lru(10**9)).tokens.rate > 0.5
    assert len({request.block_ids[0] for request in requests}) <= 2


def test_agents_fork_into_many_branches_and_grow_to_their_limit() -> None:
    workload = Agentic(request_count=4_000)
    requests = workload.requests()
    largest = max(request.input_tokens for request in requests)
    assert 0.8 * workload.prompt_tokens_max < largest <= workload.prompt_tokens_max
    children: dict[int, set[int]] = {}
    for request in requests:
        for parent, child in zip(request.block_ids, request.block_ids[1:], strict=False):
            children.setdefault(parent, set()).add(child)
    system_end = requests[0].block_ids[workload.system_tokens // BLOCK_TOKENS - 1]
    widest = max(len(found) for block, found in children.items() if block != system_end)
    # Where they part each has its partial block at first, and then that block filled.
    assert 16 <= widest <= 2 * (workload.branch_count_max + 1)
    assert replay(requests, Lru(10**9)).tokens.rate > 0.85


def test_unknown_workloads_and_empty_ones_are_refused() -> None:
    with pytest.raises(UsageError, match="one of poisson, "):
        make_workload("magic", 5)
    with pytest.raises(UsageError, match="at least 1"):
        make_workload("poisson", 0)
