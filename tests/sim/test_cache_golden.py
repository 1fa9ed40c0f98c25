"""Hit rates on the shipped traces, as others measured them. Each figure's definition is in `HitRates`.

FIFO, LRU and OPT: the third-party tool `kvcache-simulator` 0.1.3; .3664 is also what Dynamo prints for this trace.
"""

from __future__ import annotations

from functools import cache

import pytest

from moonpool.sim.caches import BlockLru, Fifo, LengthAware, Lfu, Lru, Optimal
from moonpool.sim.caches.hit_rate import HitRate, replay
from moonpool.sim.trace import Request, read_trace

UNLIMITED = 10**9
CAPACITIES = (1_000, 3_000, 5_859, 10_000, 20_000, 30_000, 50_000)
LAST_HALF_BY_TOKENS = {
    Fifo: (0.04573, 0.06443, 0.12829, 0.18309, 0.26705, 0.30424, 0.34825),
    Lru: (0.04673, 0.06691, 0.13673, 0.21954, 0.30312, 0.34378, 0.37669),
}
BLOCKS_OF_ALL = [
    # policy, trace, block-weighted rates by capacity, and how far the figure may be off
    (BlockLru, "conversation", {1_000: 0.0445, 3_000: 0.0650, 5_859: 0.1355, 10_000: 0.2112}, 0.00006),
    (BlockLru, "conversation", {30_000: 0.3257, 50_000: 0.3546, 100_000: 0.3637, UNLIMITED: 0.3664}, 0.00006),
    (BlockLru, "synthetic", {1_000: 0.0825, 3_000: 0.1878, 5_859: 0.3094, 10_000: 0.4235}, 0.00006),
    (BlockLru, "synthetic", {30_000: 0.6242, 50_000: 0.6396, UNLIMITED: 0.6396}, 0.00006),
    (Lfu, "conversation", {1_000: 0.048, 10_000: 0.132, 30_000: 0.276, 50_000: 0.344, UNLIMITED: 0.3664}, 0.0006),
    (Lfu, "synthetic", {1_000: 0.040, 10_000: 0.358, 30_000: 0.626, 50_000: 0.640}, 0.002),
    (LengthAware, "conversation", {1_000: 0.050, 10_000: 0.112, 30_000: 0.203, 50_000: 0.260}, 0.0006),
]


@cache
def requests_of(name: str) -> list[Request]:
    return list(read_trace(name))


def shown(found: HitRate, expected: float, capacity: int) -> str:
    return f"{capacity} blocks: {found}, expected {expected}"


@pytest.mark.parametrize("policy", LAST_HALF_BY_TOKENS, ids=lambda policy: policy.__name__)
def test_the_last_half_of_conversation_matches_the_other_tool_to_five_digits(policy: type[Fifo | Lru]) -> None:
    for capacity, expected in zip(CAPACITIES, LAST_HALF_BY_TOKENS[policy], strict=True):
        found = replay(requests_of("conversation"), policy(capacity)).tokens_of_last_half
        assert round(found.rate, 5) == expected, shown(found, expected, capacity)


@pytest.mark.parametrize(
    ("capacity", "expected"), [(1_000, 0.19703), (3_000, 0.30962), (5_859, 0.37618), (10_000, 0.39811)]
)
def test_the_optimum_matches_the_other_tool_to_five_digits(capacity: int, expected: float) -> None:
    requests = requests_of("conversation")
    cache = Optimal(capacity, future=[request.block_ids for request in requests])
    found = replay(requests, cache).tokens_of_last_half
    assert round(found.rate, 5) == expected, shown(found, expected, capacity)


def test_the_ceiling_of_conversation_is_what_others_print() -> None:
    found = replay(requests_of("conversation"), Lru(UNLIMITED))
    assert round(found.blocks.rate, 4) == 0.3664, found.blocks
    assert round(found.tokens_of_last_half.rate, 6) == 0.398113, found.tokens_of_last_half
    assert found.tokens.rate == pytest.approx(0.3736, abs=0.0001), found.tokens


@pytest.mark.parametrize(("policy", "trace", "expected", "off_by_max"), BLOCKS_OF_ALL)
def test_block_hit_rates_match_the_table(
    policy: type[Lfu], trace: str, expected: dict[int, float], off_by_max: float
) -> None:
    for capacity, rate in expected.items():
        found = replay(requests_of(trace), policy(capacity)).blocks
        assert found.rate == pytest.approx(rate, abs=off_by_max), shown(found, rate, capacity)


@pytest.mark.parametrize("capacity", [1_000, 3_000, 5_859])
def test_evicting_leaves_first_never_does_worse_on_the_shipped_traces(capacity: int) -> None:
    for trace in ("conversation", "synthetic"):
        leaf_first, by_block = (replay(requests_of(trace), policy(capacity)).blocks for policy in (Lru, BlockLru))
        assert leaf_first.hit_count >= by_block.hit_count, (trace, leaf_first, by_block)
