"""The engine benchmarks' sums: what meets a target, and what was not measured never does."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING

import aiohttp
import pytest
from fake_openai import FakeModel, serving

from moonpool.errors import MoonpoolError
from moonpool.identity import RequestOutcome
from moonpool.testing.bench_engines_faults import Load, Sample, fault_rows, quiet_rows
from moonpool.testing.bench_engines_rows import Row, median_row, write_rows
from moonpool.testing.bench_engines_sharing import (
    Asker,
    Round,
    UniquePrompts,
    cost_rows,
    measure_rounds,
    pool_rows,
    sharing_rows,
)
from moonpool.testing.bench_peers_services import Peer, install, transfer_flags
from moonpool.testing.engines import Engine, EngineSpec

if TYPE_CHECKING:
    from pathlib import Path


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def one_round(across_ms: float = 400, local_ms: float = 350, *, cold_ms: float = 6000, alone_ms: float = 6000,
              applied: int = 1216, byte_count: int = 56_000_000, load_ms: float = 20) -> Round:  # fmt: skip
    outcome = RequestOutcome(request_id="x", prompt_tokens=1250, promised_tokens=1216, applied_tokens=applied,
                             byte_count=byte_count, load_ms=load_ms)  # fmt: skip
    return Round(cold_ms=cold_ms, across_ms=across_ms, local_a_ms=local_ms, local_b_ms=local_ms, outcome=outcome,
                 cold_alone_ms=alone_ms, local_alone_ms=local_ms)  # fmt: skip


def samples(kind: str, times: list[float], *, failed: int = 0) -> list[Sample]:
    good = [Sample(kind=kind, engine="A", sent_s=0, ttft_ms=value) for value in times]
    return good + [Sample(kind=kind, engine="A", sent_s=0, ttft_ms=1, error="HTTP 500")] * failed


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row(name="x", value=1, unit="ms"), None),
        (Row(name="x", value=1, unit="ms", target=1), True),
        (Row(name="x", value=2, unit="ms", target=1), False),
        (Row(name="x", value=2, unit="GB/s", target=1, at_least=True), True),
        (Row(name="x", value=math.nan, unit="ms", target=1), False),
        (Row(name="x", value=math.nan, unit="GB/s", target=1, at_least=True), False),
        (median_row("x", [], target=1), False),
    ],
)
def test_a_target_is_met_or_not_and_nothing_measured_meets_none(row: Row, met: bool | None) -> None:
    assert row.met is met


def test_across_is_compared_with_a_local_hit() -> None:
    rows = by_name(sharing_rows("m", [one_round(400, 350), one_round(420, 350), one_round(380, 350)]))
    assert rows["m.ttft.across_minus_local"].value == 50
    assert rows["m.ttft.across_minus_local"].met
    assert not by_name(sharing_rows("m", [one_round(500, 350)]))["m.ttft.across_minus_local"].met


def test_bandwidth_is_what_the_connector_reports() -> None:
    rows = by_name(pool_rows("m", [one_round(), one_round(load_ms=36)]))
    assert rows["m.load.bandwidth"].value == pytest.approx(2.0)
    assert rows["m.load.bandwidth"].met


def test_blocks_that_came_late_or_cut_are_shown() -> None:
    rows = by_name(pool_rows("m", [one_round(), one_round(applied=610)]))
    assert not rows["m.available_at_once"].met
    assert "NOT" in rows["m.available_at_once"].remark


def test_engines_without_our_report_have_no_pool_rows() -> None:
    assert pool_rows("m", [Round(cold_ms=1, across_ms=1, local_a_ms=1, local_b_ms=1)]) == []


def test_cost_is_a_share_of_the_same_prompts_alone() -> None:
    rounds = [one_round(cold_ms=6060), one_round(cold_ms=6060)]
    unique = UniquePrompts(pairs=[(2010.0, 2000.0), (1990.0, 2000.0)], own_ms=12)
    rows = by_name(cost_rows("m", rounds, unique))
    assert rows["m.cost.cold"].value == pytest.approx(0.01)
    assert rows["m.cost.unique"].value == pytest.approx(0)
    assert rows["m.cost.unique.own_time"].value == pytest.approx(0.003)
    assert "within noise" in rows["m.cost.unique"].remark
    nothing = by_name(cost_rows("m", [], UniquePrompts()))
    assert not nothing["m.cost.cold"].met
    assert not nothing["m.cost.unique.own_time"].met


def test_a_fault_is_measured_against_the_quiet_time() -> None:
    quiet = samples("short", [100, 100, 110]) + samples("again", [50]) + samples("fresh", [200])
    during = samples("short", [105, 105, 1500]) + samples("again", [50]) + samples("fresh", [215], failed=1)
    rows = by_name(fault_rows("node_killed", quiet, during))
    assert rows["fault.node_killed.failed"].value == 1
    assert not rows["fault.node_killed.failed"].met
    assert rows["fault.node_killed.short.added_p50"].value == 5
    assert rows["fault.node_killed.short.added_max"].value == 1400
    assert not rows["fault.node_killed.short.added_max"].met
    assert not rows["fault.node_killed.fresh.added_p50"].met
    assert by_name(quiet_rows(quiet))["quiet.ttft.short"].value == 100


def test_no_request_in_a_fault_meets_no_target() -> None:
    rows = by_name(fault_rows("x", samples("short", [100]), []))
    assert rows["fault.x.short.added_p50"].met is False


def test_rows_are_written_one_object_a_line(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", [Row(name="a", value=1, unit="ms", target=2), median_row("b", [])])
    found = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert found[0]["met"] is True
    assert found[1]["value"] is None


def fake_engine(name: str, url: str, folder: Path) -> Engine:
    engine = Engine(EngineSpec(name=name, model_folder=folder, model_name="fake", log_folder=folder))
    engine.url = url
    return engine


def test_rounds_ask_first_cold_then_across_at_once(tmp_path: Path) -> None:
    models = {name: FakeModel() for name in ("A", "B", "alone")}

    async def run() -> list[Round]:
        async with (
            serving(models["A"]) as a,
            serving(models["B"]) as b,
            serving(models["alone"]) as c,
            aiohttp.ClientSession() as session,
        ):
            asker = Asker(session, stack=None, progress=lambda text: None)
            engines = [fake_engine(name, url, tmp_path) for name, url in (("A", a), ("B", b), ("alone", c))]
            return await measure_rounds(asker, engines[0], engines[1], alone=engines[2], count=2)

    rounds = asyncio.run(run())
    assert len(rounds) == 2
    assert {name: len(model.bodies) for name, model in models.items()} == {"A": 4, "B": 4, "alone": 4}
    systems = [body["messages"][0]["content"] for body in models["A"].bodies]
    assert systems[0] == systems[1] != systems[2]
    assert models["B"].bodies[0]["messages"][0]["content"] == systems[0]


def test_load_keeps_going_when_an_engine_fails_and_counts_it(tmp_path: Path) -> None:
    good, bad = FakeModel(), FakeModel(status=500)

    async def run() -> list[Sample]:
        async with serving(good) as a, serving(bad) as b, aiohttp.ClientSession() as session:
            asker = Asker(session, stack=None, progress=lambda text: None)
            async with Load(asker, [fake_engine("A", a, tmp_path), fake_engine("B", b, tmp_path)]) as load:
                async with asyncio.timeout(30):
                    while len(good.bodies) < 6 or len(bad.bodies) < 3:
                        await asyncio.sleep(0.01)
            return load.samples

    found = asyncio.run(run())
    assert all(bool(sample.error) == (sample.engine == "B") for sample in found)
    assert {sample.kind for sample in found} == {"short", "again", "fresh"}


def test_a_missing_library_is_named_with_its_package() -> None:
    peer = Peer("nobody", (), (), (("surely-not-there", "libsurely1"),))
    with pytest.raises(MoonpoolError, match="apt-get install -y libsurely1"):
        install(peer, lambda text: None)


def test_peers_recompute_what_they_cannot_load() -> None:
    config = json.loads(transfer_flags("X", {"a": 1})[1])
    assert config["kv_load_failure_policy"] == "recompute"
    assert config["kv_connector_extra_config"] == {"a": 1}
