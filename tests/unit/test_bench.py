"""The benchmark's arithmetic, and its command line with a measured world of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from moonpool.cli.bench import PromptRequest, bench, table_of
from moonpool.errors import UsageError
from moonpool.testing.bench import run as bench_run
from moonpool.testing.bench.machine import CACHE_BYTES_ASSUMED, MIB, WORKING_SETS, working_set_bytes
from moonpool.testing.bench.measure import Effort, Row, call_times_us, in_turns, percentile, row
from moonpool.testing.bench.plot import picture
from moonpool.testing.bench.run import BenchSettings
from moonpool.testing.bench.stage import Stage, require_all
from moonpool.testing.bench.topics import Bar, Topic, ratio_at_least, ratio_at_most, value_at_least, value_at_most

ROWS = [row("pool.put.shm.1MiB", 6.0, "GB/s", limit=8.0), row("index.match", 11.5, "M blocks/s")]


def test_a_ratio_is_the_value_in_units_of_the_limit() -> None:
    assert ROWS[0].ratio == 0.75
    assert ROWS[1].limit is None
    assert ROWS[1].ratio is None


@pytest.mark.parametrize(
    ("bar", "words", "reached"),
    [
        (ratio_at_least(0.75), "≥ 0.75 of the limit", True),
        (ratio_at_most(0.5), "≤ 0.5 of the limit", False),
        (value_at_least(4_000_000), "≥ 4,000,000", False),
        (value_at_most(6.0), "≤ 6", True),
    ],
)
def test_a_bar_is_reached_by_value_or_by_ratio(bar: Bar, words: str, reached: bool) -> None:
    assert str(bar) == words
    assert bar.reached_by(ROWS[0]) is reached


def test_a_ratio_that_nobody_measured_reaches_no_bar() -> None:
    assert ratio_at_least(0.1).reached_by(ROWS[1]) is None


def test_a_topic_judges_its_rows_and_refuses_others() -> None:
    with Stage(Effort(), make_step=lambda _config, _prompt: int) as stage:
        topic = Topic("moving", {"pool.put.shm.1MiB": ratio_at_least(0.8)}, lambda _stage: iter(ROWS))
        judged = topic.judged(stage)
        assert next(judged).reached is False
        with pytest.raises(AssertionError, match=r"does not declare index\.match"):
            next(judged)


def test_the_picture_shows_each_row_that_has_a_limit() -> None:
    drawn = picture(ROWS)
    assert "pool.put.shm.1MiB" in drawn
    assert "index.match" not in drawn
    assert drawn.count("<rect") == 1


def test_works_run_in_turns_after_a_pass_to_warm_up() -> None:
    seen: list[str] = []
    medians = in_turns([lambda: seen.append("pool"), lambda: seen.append("machine")], pass_count=3)
    assert seen == ["pool", "machine"] * 4
    assert len(medians) == 2


def test_call_times_are_sorted_and_one_a_call() -> None:
    numbers: list[int] = []
    times_us = call_times_us(numbers.append, call_count=20)
    assert numbers == [0, 1, *range(20)]
    assert times_us == sorted(times_us)
    assert len(times_us) == 20


@pytest.mark.parametrize(("percent", "wanted"), [(0, 1.0), (50, 3.0), (99, 4.0), (100, 4.0)])
def test_a_percentile_is_a_measured_value(percent: float, wanted: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == wanted


def test_rows_are_chosen_by_patterns() -> None:
    assert BenchSettings().wants(["pool.put.shm.1MiB"])
    chosen = BenchSettings(only=("pool.put.*", "index.match"))
    assert chosen.wants(["pool.put.shm.1MiB"])
    assert chosen.wants({"pool.put.shm.4MiB": None, "python.loop": None})
    assert not chosen.wants(["connector.schedule_step"])
    assert not chosen.wants(["index.events"])


def test_a_working_set_is_at_least_four_times_any_cache() -> None:
    assert working_set_bytes() >= WORKING_SETS * CACHE_BYTES_ASSUMED
    assert working_set_bytes() % MIB == 0


def test_a_refused_call_ends_the_benchmark() -> None:
    require_all([True, 1, "stored"])
    with pytest.raises(UsageError, match="refused a call: 0"):
        require_all([True, 0])


def test_a_prompt_has_one_token_to_compute() -> None:
    assert PromptRequest("r", [b"a", b"b"]).token_count == 33


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[BenchSettings]:
    """The settings that the command asked for; the rows are made up."""
    asked: list[BenchSettings] = []

    def run(settings: BenchSettings, *, make_step: object, progress: Callable[[str], None]) -> Iterator[Row]:
        asked.append(settings)
        progress("everything")
        yield from ROWS

    monkeypatch.setattr(bench_run, "run", run)
    return asked


def test_json_is_one_object_a_line(measured: list[BenchSettings]) -> None:
    result = CliRunner().invoke(bench, ["--json", "--quick", "--only", "pool.*"])
    assert result.exit_code == 0
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [document["name"] for document in documents] == [measured_row.name for measured_row in ROWS]
    assert documents[0] == {
        "name": "pool.put.shm.1MiB",
        "value": 6.0,
        "unit": "GB/s",
        "limit": 8.0,
        "ratio": 0.75,
        "bar": None,
        "reached": None,
    }
    assert documents[1]["limit"] is None
    assert measured[0].only == ("pool.*",)


@pytest.mark.usefixtures("measured")
def test_the_table_names_every_row() -> None:
    result = CliRunner().invoke(bench, [])
    assert result.exit_code == 0
    assert all(measured_row.name in result.stdout for measured_row in ROWS)
    assert table_of(ROWS).row_count == len(ROWS)
