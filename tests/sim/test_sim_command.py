"""`moonpool sim`: the table, the report, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from moonpool.cli import EXIT_USAGE, run
from moonpool.sim.plot import Axes, Series, cumulative, heat_map, line_plot
from moonpool.sim.trace import read_trace

REQUEST_COUNT = 300


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """The first of the conversation trace."""
    rows = []
    for request, _ in zip(read_trace("conversation"), range(REQUEST_COUNT), strict=False):
        sizes = {"input_length": request.input_tokens, "output_length": request.output_tokens}
        rows.append({"timestamp": request.arrival_s * 1_000, **sizes, "hash_ids": request.block_ids})
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["sim", *arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_same_seed_gives_the_same_output(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (trace, "--workers", "4P6D", "--policy", "random", "--seed", "5")
    first = simulated(capsys, *arguments)
    assert first == simulated(capsys, *arguments)
    assert first["result"]["request_count"] == REQUEST_COUNT
    assert first["result"]["digest"] != simulated(capsys, *arguments[:-1], "6")["result"]["digest"]


def test_more_speed_makes_requests_wait_longer(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    slow, fast = (simulated(capsys, trace, "--workers", "4P", "--speed", speed) for speed in ("1", "4"))
    assert slow["result"]["ttft_s"]["mean"] < fast["result"]["ttft_s"]["mean"]


def test_a_workload_takes_the_place_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    answer = simulated(capsys, "--workload", "agentic", "--requests", "200", "--workers", "2P4D")
    assert answer["source"] == "agentic"
    assert answer["result"]["token_hit_rate"] > 0.5


def test_the_models_kv_decides_how_much_fits(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "config.json"
    model.write_text(json.dumps({"num_hidden_layers": 1, "hidden_size": 512, "num_attention_heads": 4}))
    answer = simulated(capsys, trace, "--workers", "4P", "--model", str(model), "--dram", "4GiB")
    assert answer["scenario"]["kv_bytes_per_token"] == 2048
    small = simulated(capsys, trace, "--workers", "4P", "--dram", "4GiB")
    assert answer["result"]["token_hit_rate"] > small["result"]["token_hit_rate"]


def test_the_table_says_what_a_hit_rate_is(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", trace, "--workers", "4P6D"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "TTFT" in shown
    assert "needed no prefill / prompt tokens" in shown


def test_the_report_stands_alone(trace: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run(["sim", trace, "--workers", "4P6D", "--report", str(page)]) == 0
    text = page.read_text()
    assert not re.search(r"https?:|<script|<link|url\(|@import|src=", text), "it asks for something outside of itself"
    assert "prefers-color-scheme: dark" in text
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(plots) == 6
    for plot in plots:
        ET.fromstring(plot)
    for title in ("Time to first token", "Hit rate over time", "Requests turned away", "Prefill queue of each worker"):
        assert title in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.jsonl"], "no such trace"),
        ([], "TRACE"),
        (["conversation", "--workload", "agentic"], "either a TRACE"),
        (["--workload", "magic"], "one of poisson"),
        (["conversation", "--workers", "many"], "10P6D"),
        (["conversation", "--policy", "magic"], "give one of moonpool"),
        (["conversation", "--eviction", "magic"], "one of lru"),
        (["conversation", "--admission", "magic"], "one of none"),
        (["conversation", "--dram", "much"], "4GiB"),
        (["conversation", "--dram", "1MB"], "hold no block"),
        (["conversation", "--speed", "0"], "more than 0"),
        (["conversation", "--model", "nowhere.json"], "no config.json"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sim", "run", *arguments]) == EXIT_USAGE
    assert says in capsys.readouterr().err


def test_a_distribution_rises_to_one() -> None:
    points = cumulative([3.0, 1.0, 2.0] * 1_000)
    assert points == sorted(points)
    assert points[-1] == (3.0, 1.0)
    assert len(points) <= 1_000


def test_plots_of_nothing_are_a_sentence() -> None:
    assert line_plot([Series("none", [])], Axes(x="s", y="share")) == "<p>Nothing to show.</p>"
    assert heat_map([], x="s", unit="requests", x_max=1.0) == "<p>Nothing to show.</p>"


def test_a_heat_map_of_many_workers_stays_readable() -> None:
    drawn = heat_map([(f"P{number}", [1.0] * 1_000) for number in range(1_000)], x="s", unit="requests", x_max=10.0)
    assert drawn.count("<rect") <= 64 * 160
