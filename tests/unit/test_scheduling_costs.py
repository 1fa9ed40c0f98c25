"""Cost models: the published points, learning, guards, tables."""

from __future__ import annotations

import math
import random

import pytest

from moonpool.errors import UsageError
from moonpool.scheduling.decode_cost import FittedDecode, OnlineDecode, TableDecode
from moonpool.scheduling.prefill_cost import FittedPrefill, OnlinePrefill, TablePrefill
from moonpool.scheduling.regression import ForgettingLeastSquares
from moonpool.scheduling.transfer_cost import OnlineLink, SharedLink
from moonpool.scheduling.workers import Worker

# Fig 14 of the Mooncake paper (FAST'25), prompt tokens to seconds.
COLD = {8192: 1.00, 16384: 2.05, 32768: 4.48, 65536: 10.58, 131072: 27.51}
WARM = {8192: 0.134, 16384: 0.227, 32768: 0.406, 65536: 0.882, 131072: 2.328}

# Fig 15, requests per decode worker by Little's law to the mean of the worst tenth of intervals, in seconds.
PER_DECODE_WORKER = {11: 31.6e-3, 10: 31.8e-3, 9: 33.0e-3, 8: 35.1e-3, 7: 38.3e-3, 6: 44.3e-3, 5: 58.4e-3}


@pytest.mark.parametrize("tokens", COLD)
def test_prefill_without_a_cache_follows_the_paper(tokens: int) -> None:
    assert FittedPrefill().seconds(tokens, 0) == pytest.approx(COLD[tokens], rel=0.04)


@pytest.mark.parametrize("tokens", WARM)
def test_prefill_of_a_cached_prompt_includes_its_load(tokens: int) -> None:
    cached = round(tokens * 0.95)
    assert FittedPrefill().seconds(tokens, cached) == pytest.approx(WARM[tokens], abs=0.03)
    assert FittedPrefill.without_load().seconds(tokens, cached) < WARM[tokens]


@pytest.mark.parametrize("worker_count", PER_DECODE_WORKER)
def test_decoding_follows_the_paper(worker_count: int) -> None:
    tbt = PER_DECODE_WORKER[worker_count]
    batch = 3.907 * 16 / 16 / worker_count * 149 * tbt
    cost = FittedDecode()
    # Fractional batches: between the whole ones on either side.
    low, high = (cost.tbt_seconds(size, round(batch * 15_325)) for size in (int(batch), int(batch) + 1))
    exact = low + (batch - int(batch)) * (high - low)
    assert exact == pytest.approx(tbt, abs=1e-3)


def test_a_transfer_shares_the_busier_end() -> None:
    link = SharedLink(kv_token_bytes=100.0, bandwidth_bytes_per_second=1000.0, latency_seconds=0.5)
    source, target = Worker(0, "a"), Worker(1, "b")
    assert link.seconds(10, source, target) == pytest.approx(1.5)
    source.sending_count, target.receiving_count = 3, 1
    assert link.seconds(10, source, target) == pytest.approx(4.5)


def test_the_learnt_bandwidth_follows_and_stays_near_the_nominal_one() -> None:
    link = OnlineLink(SharedLink(kv_token_bytes=100.0, bandwidth_bytes_per_second=1000.0))
    for _ in range(200):
        assert link.learn(10, 2.0)
    assert link.bandwidth_bytes_per_second == pytest.approx(500.0, rel=0.01)
    for _ in range(500):
        link.learn(10, 1e9)
    assert link.bandwidth_bytes_per_second == pytest.approx(100.0, rel=0.01)
    assert not link.learn(10, 0.0)
    assert not link.learn(0, 1.0)


def test_prefill_learns_another_machine_from_its_prompts() -> None:
    draw = random.Random(7)
    truth = FittedPrefill(4e-5, 2e-10, 0.02, 1e-6)
    model = OnlinePrefill()
    for _ in range(600):
        tokens = draw.randint(200, 60_000)
        cached = draw.choice([0, draw.randint(0, tokens - 1)])
        model.learn(tokens, cached, truth.seconds(tokens, cached) * draw.uniform(0.95, 1.05))
    for tokens, cached in [(1000, 0), (20_000, 0), (20_000, 15_000), (60_000, 30_000)]:
        assert model.seconds(tokens, cached) == pytest.approx(truth.seconds(tokens, cached), rel=0.1)


def test_prefill_follows_an_engine_that_becomes_three_times_slower() -> None:
    draw = random.Random(11)
    model = OnlinePrefill()
    for slowdown in (1.0, 3.0):
        for _ in range(2000):
            tokens = draw.randint(500, 30_000)
            model.learn(tokens, 0, slowdown * FittedPrefill().seconds(tokens, 0))
    assert model.seconds(10_000, 0) == pytest.approx(3.0 * FittedPrefill().seconds(10_000, 0), rel=0.05)


def test_measurements_that_cannot_be_true_teach_nothing() -> None:
    model = OnlinePrefill()
    before = model.seconds(10_000, 0)
    for seconds in (0.0, -1.0, math.nan, math.inf):
        assert not model.learn(10_000, 0, seconds)
    assert not model.learn(100, 200, 1.0)
    assert not model.learn(0, 0, 1.0)
    assert model.seconds(10_000, 0) == before
    assert model.sample_count == 0


def test_one_outlier_is_refused_and_many_are_believed() -> None:
    fit = ForgettingLeastSquares([1.0], sample_count_min=10)
    for _ in range(20):
        fit.learn([1.0], 1.0)
    assert not fit.learn([1.0], 20.0)
    assert fit.value([1.0]) == pytest.approx(1.0)
    for _ in range(400):
        fit.learn([1.0], 20.0)
    assert fit.value([1.0]) == pytest.approx(20.0, rel=0.25)
    assert fit.refused_count == 10


def test_the_fit_survives_an_hour_of_equal_samples() -> None:
    """Forgetting without new knowledge makes the uncertainty grow: it must not blow up and then jump."""
    model = OnlinePrefill(forgetting=0.9)
    for _ in range(5000):
        model.learn(8192, 0, 1.0)
    assert model.seconds(8192, 0) == pytest.approx(1.0, rel=0.01)
    model.learn(32_768, 0, FittedPrefill().seconds(32_768, 0))
    assert model.seconds(8192, 0) == pytest.approx(1.0, rel=0.3)
    assert math.isfinite(model.seconds(131_072, 65_536))


def test_decoding_learns_another_machine() -> None:
    draw = random.Random(3)
    truth = FittedDecode(10e-3, 1e-8, 0.5e-3, 0.01e-3)
    model = OnlineDecode()
    for _ in range(600):
        batch = draw.randint(1, 60)
        kv_tokens = batch * draw.randint(500, 8000)
        model.learn(batch, kv_tokens, truth.tbt_seconds(batch, kv_tokens))
    assert model.tbt_seconds(32, 100_000) == pytest.approx(truth.tbt_seconds(32, 100_000), rel=0.05)
    assert not model.learn(0, 0, 1.0)


def test_tables_interpolate_between_what_was_measured() -> None:
    prefill = TablePrefill([1000, 3000], [0.0, 1.0], [[1.0, 0.2], [4.0, 0.6]])
    assert prefill.seconds(1000, 0) == pytest.approx(1.0)
    assert prefill.seconds(2000, 0) == pytest.approx(2.5)
    assert prefill.seconds(2000, 1000) == pytest.approx((2.5 + 0.4) / 2)
    assert prefill.seconds(5000, 0) == pytest.approx(7.0)
    decode = TableDecode([1, 11], [0, 1000], [[0.01, 0.02], [0.03, 0.04]])
    assert decode.tbt_seconds(6, 500) == pytest.approx(0.025)


@pytest.mark.parametrize(("rows", "values"), [([], []), ([2, 1], [[1], [1]]), ([1, 2], [[1]])])
def test_a_table_that_is_no_table_is_refused(rows: list[float], values: list[list[float]]) -> None:
    with pytest.raises(UsageError):
        TableDecode(rows, [0.0], values)
