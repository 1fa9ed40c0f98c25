"""`moonpool sim capacity`: its searches, and its answers on small workloads."""

from __future__ import annotations

import json
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.cli import EXIT_USAGE, run
from moonpool.errors import UsageError
from moonpool.sim.caches import Lru
from moonpool.sim.caches.hit_rate import replay
from moonpool.sim.capacity import Capacity, Prices, Wish, fewest, pool_for, size_cluster
from moonpool.sim.scenario import Scenario, simulate
from moonpool.sim.trace import Request
from moonpool.sim.workloads import Poisson, Spread

# Long shared documents: what one engine's own cache cannot hold and a pool can.
REQUESTS = Poisson(
    request_count=500, rate_per_s=3.0, document_count=60, document_tokens=24_576, own_tokens=Spread(1_000),
    output_tokens=Spread(40),
).requests()  # fmt: skip
WISH = Wish(scenario=Scenario(ttft_s=6.0), share=0.99, engine_cache_bytes=60 * 10**9)


@pytest.fixture(scope="module")
def found() -> Capacity:
    return size_cluster(REQUESTS, WISH)


@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 300))
def test_the_search_finds_the_least_number_that_is_enough(least: int, start: int, most: int) -> None:
    tried: list[int] = []

    def share(number: int) -> float:
        tried.append(number)
        return number / least

    assert fewest(share, 1.0, start=start, most=most) == (least if least <= most else None)
    assert all(1 <= number <= most for number in tried)


def test_the_search_ends_where_more_workers_do_not_help() -> None:
    tried: list[int] = []

    def share(number: int) -> float:
        tried.append(number)
        return min(number / 10, 0.9)

    assert fewest(share, 0.95, start=1, most=10**6) is None
    assert max(tried) < 100


def test_the_pool_is_large_enough_and_not_much_larger() -> None:
    blocks, unlimited = pool_for(REQUESTS, hit_share=0.9)
    assert replay(REQUESTS, Lru(blocks)).tokens.rate >= 0.9 * unlimited
    assert replay(REQUESTS, Lru(int(blocks * 0.9))).tokens.rate < 0.9 * unlimited


def test_both_answers_meet_the_objectives_and_one_worker_less_does_not(found: Capacity) -> None:
    size = found.with_pool
    assert size.met_share >= WISH.share
    assert found.without_pool.met_share >= WISH.share
    shape = f"{size.prefill_workers}P{size.decode_workers - 1}D"
    if size.decode_workers > 1:
        scenario = msgspec.structs.replace(
            WISH.scenario, workers=shape, dram_bytes=size.dram_bytes // size.prefill_workers, sample_s=0.0
        )
        scenario = msgspec.structs.replace(scenario, admission="none")
        assert simulate(scenario, REQUESTS).effective_fraction < WISH.share


def test_the_pool_saves_workers_where_prompts_are_shared(found: Capacity) -> None:
    assert found.with_pool.token_hit_rate > found.without_pool.token_hit_rate
    assert found.with_pool.prefill_workers < found.without_pool.prefill_workers
    assert found.with_pool.cost_per_million_tokens < found.without_pool.cost_per_million_tokens


def test_the_bill_is_workers_and_bytes_by_their_prices(found: Capacity) -> None:
    size, prices = found.with_pool, Prices()
    expected = prices.worker * (size.prefill_workers + size.decode_workers)
    expected += prices.dram_gigabyte * Decimal(size.dram_bytes) / 10**9
    assert size.cost_per_hour == round(expected, 2)
    tokens = sum(request.input_tokens + request.output_tokens for request in REQUESTS)
    hours = Decimal(REQUESTS[-1].arrival_s) / 3_600
    assert size.cost_per_million_tokens == pytest.approx(expected * hours * 10**6 / tokens, rel=Decimal("0.001"))


def test_what_no_cluster_can_do_is_said() -> None:
    slow = [Request(float(number), 100_000, 5, tuple(range(number * 200, number * 200 + 196))) for number in range(5)]
    with pytest.raises(UsageError, match="however many workers"):
        size_cluster(slow, Wish(scenario=Scenario(ttft_s=1.0)))


def test_the_command_answers_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sim", "capacity", "--workload", "multi-turn", "--requests", "300", "--worker-price", "10"]
    assert run([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["capacity"]["with_pool"]
    workers = answer["prefill_workers"] + answer["decode_workers"]
    assert Decimal(answer["cost_per_hour"]) > 10 * workers
    assert run(arguments) == 0
    assert f"{answer['prefill_workers']} + {answer['decode_workers']}" in capsys.readouterr().out


def test_a_price_is_an_amount(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "capacity", "conversation", "--worker-price", "much"]) == EXIT_USAGE
    assert "amount" in capsys.readouterr().err
