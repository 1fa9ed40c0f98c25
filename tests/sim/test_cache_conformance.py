"""What holds for every block cache, on trees of prompts that Hypothesis makes up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.sim.caches import POLICIES, BlockCache, Optimal, make_cache

EVERY = [*POLICIES, "optimal"]
CAPACITIES = st.integers(1, 12)


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Paths from the root of a tree with up to 3 children a node: ids cover the whole prefix."""
    paths = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=60))
    ids: dict[tuple[int, ...], int] = {}
    return [tuple(ids.setdefault(tuple(path[:end]), len(ids)) for end in range(1, len(path) + 1)) for path in paths]


def made(policy: str, capacity: int, told: list[tuple[int, ...]]) -> BlockCache:
    return Optimal(capacity, future=told) if policy == "optimal" else make_cache(policy, capacity)


@pytest.mark.parametrize("policy", EVERY)
@given(prompts=prompts(), capacity=CAPACITIES)
def test_what_a_cache_says_is_what_it_holds(policy: str, prompts: list[tuple[int, ...]], capacity: int) -> None:
    cache = made(policy, capacity, prompts)
    index: set[int] = set()
    for prompt in prompts:
        matched = cache.matched(prompt)
        assert all(block in index for block in prompt[:matched])
        assert matched == len(prompt) or prompt[matched] not in index
        dropped = cache.use(prompt)
        assert len(dropped) == len(set(dropped))
        assert set(dropped) <= index | set(prompt)
        index = (index | set(prompt)) - set(dropped)
        assert index == set(cache.blocks)
        assert len(cache) <= capacity
        cache.check_integrity()


@pytest.mark.parametrize("policy", EVERY)
@given(prompts=prompts(), capacity=CAPACITIES)
def test_no_prefix_has_a_hole_where_leaves_go_first(policy: str, prompts: list[tuple[int, ...]], capacity: int) -> None:
    cache = made(policy, capacity, prompts)
    if not cache.leaf_first:
        return
    for prompt in prompts:
        cache.use(prompt)
        for other in prompts:
            assert cache.matched(other) == sum(block in cache for block in other)


@pytest.mark.parametrize("policy", EVERY)
@given(prompts=prompts())
def test_nothing_is_dropped_while_there_is_room(policy: str, prompts: list[tuple[int, ...]]) -> None:
    cache = made(policy, sum(map(len, prompts)), prompts)
    assert not any(cache.use(prompt) for prompt in prompts)
    assert all(cache.matched(prompt) == len(prompt) for prompt in prompts)


@pytest.mark.parametrize("policy", POLICIES)
@given(prompts=prompts(), capacity=CAPACITIES)
def test_no_policy_hits_more_than_the_optimum(policy: str, prompts: list[tuple[int, ...]], capacity: int) -> None:
    hits = []
    for cache in (made("optimal", capacity, prompts), make_cache(policy, capacity)):
        count = 0
        for prompt in prompts:
            count += cache.matched(prompt)
            cache.use(prompt)
        hits.append(count)
    assert hits[0] >= hits[1]


def test_the_optimum_refuses_a_prompt_that_was_not_foretold() -> None:
    cache = Optimal(4, future=[(1, 2)])
    with pytest.raises(UsageError, match="not foretold"):
        cache.use((1, 3))


def test_a_cache_needs_room_and_a_known_policy() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        make_cache("lru", 0)
    with pytest.raises(UsageError, match="one of lru, "):
        make_cache("magic", 8)
