"""Whole runs: the published table, repeatability, failures and scale events."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from clusters import COSTS, run

from moonpool.errors import UsageError
from moonpool.sim.cluster import Die, Drain, Hardware, Join, Shape
from moonpool.sim.trace import Request, read_trace


@cache
def conversation(count: int = 12_031) -> tuple[Request, ...]:
    return tuple(read_trace("conversation"))[:count]


@cache
def synthetic(count: int) -> tuple[Request, ...]:
    return tuple(read_trace("synthetic"))[:count]


@pytest.mark.parametrize(
    ("policy", "ttft_mean"), [("random", 6.99), ("least_loaded", 1.89), ("local_prefix", 1.38), ("mooncake", 1.21)]
)
def test_mean_ttft_on_eight_engines_is_that_of_the_independent_replay(policy: str, ttft_mean: float) -> None:
    """Reference, §1.10, N = 8: sixty lines of Python by another hand."""
    assert run(conversation(), "8P", policy=policy).ttft.mean == pytest.approx(ttft_mean, rel=0.02)


@pytest.mark.parametrize("shape", ["6P", "3P3D", "6C"])
def test_same_inputs_same_result_to_the_last_byte(shape: str) -> None:
    first, second = (run(synthetic(300), shape, policy="random") for _ in range(2))
    assert first.digest == second.digest
    assert first.samples == second.samples
    assert first.digest != run(synthetic(299), shape, policy="random").digest


@pytest.mark.parametrize("shape", ["6P", "5P5D", "9C"])
def test_every_request_ends_and_no_time_runs_backwards(shape: str) -> None:
    result = run(synthetic(500), shape)
    rows = list(result.table.rows())
    assert len(rows) == 500
    for row in rows:
        assert row.refusal is None
        assert row.ttft >= row.prefill_seconds - 1e-9 > 0
        assert row.finished >= row.arrival + row.ttft - 1e-9
        assert 0 <= row.fetched_tokens <= row.hit_tokens < row.input_tokens
    busy = sum(worker.busy_seconds for worker in result.workers)
    assert busy == pytest.approx(sum(row.prefill_seconds for row in rows))


@pytest.mark.parametrize(("shape", "victim"), [("6P", 2), ("4P4D", 1), ("4P4D", 6), ("8C", 3)])
def test_requests_of_a_dead_engine_are_served_by_others(shape: str, victim: int) -> None:
    requests = synthetic(400)
    death = requests[150].arrival_s + 0.01
    result = run(requests, shape, events=(Die(death, victim),))
    assert result.rerouted_count > 0, "the engine had work when it died"
    rows = list(result.table.rows())
    assert all(row.finished == row.finished and row.refusal is None for row in rows)
    late = [row for row in rows if row.arrival > death]
    assert late
    assert all(victim not in (row.prefill_worker, row.decode_worker) for row in late)
    assert result.workers[victim].state == "dead"


def test_a_death_costs_the_prefixes_that_only_the_dead_had() -> None:
    calm, broken = (run(conversation(2_000), "6P", events=events) for events in ((), (Die(300.0, 0),)))
    assert broken.token_hit_rate < calm.token_hit_rate
    assert broken.ttft.mean > calm.ttft.mean


def test_a_draining_engine_finishes_what_it_has_and_takes_nothing_new() -> None:
    requests = synthetic(400)
    start = requests[150].arrival_s + 0.01
    result = run(requests, "6P", events=(Drain(start, 2),))
    assert result.rerouted_count == 0
    assert all(row.prefill_worker != 2 for row in result.table.rows() if row.arrival > start)
    assert any(row.prefill_worker == 2 for row in result.table.rows())


def test_an_engine_that_joins_takes_load_from_the_others() -> None:
    requests = synthetic(1_200)
    before, after = (run(requests, "5P", events=events) for events in ((), (Join(60.0, "P"),)))
    assert after.ttft.mean < before.ttft.mean
    assert sum(row.prefill_worker == 5 for row in after.table.rows()) > 50


def test_without_anybody_left_requests_are_turned_away_with_a_reason() -> None:
    requests = synthetic(40)
    result = run(requests, "1P", events=(Die(requests[20].arrival_s + 0.5, 0),))
    assert result.rejected_count > 10
    assert {refusal.value for refusal in result.refusals} == {"no_worker"}


def test_one_token_of_output_needs_no_decoding() -> None:
    requests = [replace_output(request) for request in synthetic(50)]
    result = run(requests, "4P1D")
    assert result.tbt.highest == 0.0
    assert result.effective_fraction == 1.0


def replace_output(request: Request) -> Request:
    return Request(request.arrival_s, request.input_tokens, 1, request.block_ids)


@pytest.mark.parametrize("text", ["", "P", "0P4D", "4D", "4P2C", "4X", "4P-1D"])
def test_a_shape_that_cannot_serve_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="workers"):
        Shape.parse(text)


def test_a_shape_reads_back() -> None:
    assert str(Shape.parse("10p6D")) == "10P6D"
    assert replace(Shape.parse("16C"), coupled=3) == Shape(coupled=3)


def test_a_fetch_whose_source_dies_is_computed_instead() -> None:
    """One second of fetching over a slow link; the source dies in the middle of it."""
    prompt = tuple(range(20))
    requests = [
        Request(0.0, 20 * 512, 1, prompt),
        Request(5.0, 118 * 512, 1, (*prompt, *range(1_000, 1_098))),  # keeps the holder of the prompt busy
        Request(5.1, 20 * 512 + 1, 1, (*prompt, 98)),
    ]
    slow = Hardware(network_bytes_per_second=20 * 512 * 327_680)
    whole = run(requests, "2P", hardware=slow)
    holder, other = whole.table.prefill_worker[0], whole.table.prefill_worker[2]
    assert holder == whole.table.prefill_worker[1] != other
    assert whole.table.fetched_tokens[2] == 20 * 512
    assert whole.failed_fetch_count == 0
    broken = run(requests, "2P", events=(Die(5.5, holder),), hardware=slow)
    assert broken.failed_fetch_count == 1
    assert broken.table.fetched_tokens[2] == broken.table.hit_tokens[2] == 0
    assert broken.table.prefill_worker[2] == other
    assert broken.table.finished[2] == pytest.approx(5.5 + COSTS.prefill.seconds(20 * 512 + 1, 0))
