"""Balancing experts over GPUs, and requests over ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.scheduling.balance import Load, Prompt, balance_decode, balance_prefill, spread
from moonpool.scheduling.experts import ExpertCluster, gpu_loads, pack_evenly, place_experts

PUBLISHED_LOADS = [
    [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
]
PUBLISHED_PLACES = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


def test_the_published_example_comes_out() -> None:
    assert place_experts(PUBLISHED_LOADS, ExpertCluster(replicas=16, groups=4, nodes=2, gpus=8)) == PUBLISHED_PLACES


def test_groups_that_do_not_divide_among_nodes_are_placed_globally() -> None:
    uneven = place_experts(PUBLISHED_LOADS, ExpertCluster(replicas=16, groups=3, nodes=2, gpus=8))
    assert uneven == place_experts(PUBLISHED_LOADS, ExpertCluster(replicas=16, groups=1, nodes=1, gpus=8))
    for loads, places in zip(PUBLISHED_LOADS, uneven, strict=True):
        mean = sum(loads) / 8
        assert max(gpu_loads(loads, places, 8)) < 1.25 * mean


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[float], ExpertCluster]:
    nodes, gpus_per_node, groups_per_node = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    group_size = draw(st.integers(1, 4))
    experts, gpus = nodes * groups_per_node * group_size, nodes * gpus_per_node
    replicas = (-(-experts // gpus) + draw(st.integers(0, 3))) * gpus
    loads = draw(st.lists(st.floats(0, 1000), min_size=experts, max_size=experts))
    return loads, ExpertCluster(replicas, nodes * groups_per_node, nodes, gpus)


@given(clusters())
def test_each_expert_has_a_copy_and_stays_on_its_node(made: tuple[list[float], ExpertCluster]) -> None:
    loads, cluster = made
    [places] = place_experts([loads], cluster)
    assert len(places) == cluster.replicas
    assert set(places) == set(range(len(loads)))
    assert sum(gpu_loads(loads, places, cluster.gpus)) == pytest.approx(sum(loads))
    per_node, group_size = cluster.replicas // cluster.nodes, len(loads) // cluster.groups
    homes = {(expert // group_size, place // per_node) for place, expert in enumerate(places)}
    assert len(homes) == cluster.groups


@given(st.lists(st.integers(0, 100), min_size=4, max_size=32).filter(lambda loads: len(loads) % 4 == 0))
def test_packs_are_equally_full_and_near_in_weight(loads: list[int]) -> None:
    packs = pack_evenly(loads, 4)
    assert sorted(item for pack in packs for item in pack) == list(range(len(loads)))
    assert {len(pack) for pack in packs} == {len(loads) // 4}


def test_numbers_that_do_not_fit_are_refused() -> None:
    for cluster in (ExpertCluster(15, 1, 1, 8), ExpertCluster(8, 1, 1, 8), ExpertCluster(16, 5, 1, 8)):
        with pytest.raises(UsageError, match=r"expected|uneven"):
            place_experts(PUBLISHED_LOADS, cluster)


@given(st.lists(st.tuples(st.integers(1, 10**5), st.floats(0, 1)), max_size=60), st.integers(1, 9))
def test_no_prefill_rank_gets_much_more_than_its_share(prompts: list[tuple[int, float]], rank_count: int) -> None:
    waiting = [Prompt(tokens, int(tokens * cached)) for tokens, cached in prompts]
    ranks = balance_prefill(waiting, [Load(0, 0)] * rank_count)
    assert len(ranks) == len(waiting)
    for kind in (0, 1):
        loads = Counter[int]()
        for prompt, rank in zip(waiting, ranks, strict=True):
            loads[rank] += prompt.load[kind]
        largest = max((prompt.load[kind] for prompt in waiting), default=0)
        largest_share = max(
            (
                prompt.load[other] / (sum(item.load[other] for item in waiting) or 1)
                for prompt in waiting
                for other in (0, 1)
            ),
            default=0,
        )
        whole = sum(prompt.load[kind] for prompt in waiting)
        assert max(loads.values(), default=0) <= whole * (2 / rank_count + largest_share) + largest


def test_decode_ranks_even_out_counts_and_kv() -> None:
    chosen = balance_decode([8_000, 100, 8_000, 100], [Load(0, 0), Load(0, 0)])
    assert Counter(chosen) == {0: 2, 1: 2}
    assert chosen[0] != chosen[2]
    assert balance_decode([1_000], [Load(50_000, 9), Load(10_000, 2)]) == [1]


@given(st.integers(0, 50), st.integers(1, 8))
def test_equal_requests_split_evenly(count: int, rank_count: int) -> None:
    counts = Counter(spread([Load(5, 1)] * count, [Load(0, 0)] * rank_count))
    assert max(counts.values(), default=0) - min((counts[rank] for rank in range(rank_count)), default=0) <= 1


def test_there_must_be_a_rank() -> None:
    with pytest.raises(UsageError, match="no rank"):
        spread([], [])
