"""The bench measures what it says."""

from __future__ import annotations

import json

import pytest

from moonpool.cli import run as command


def test_the_bench_repeats_its_result_and_prints_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    speeds = []
    for _ in range(2):
        assert command(["sim", "bench", "--requests", "300", "--workers", "4P6D", "--json"]) == 0
        speeds.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    first, second = speeds
    assert [speed["request_count"] for speed in first] == [12_031, 300]
    assert [speed["digest"] for speed in first] == [speed["digest"] for speed in second]
    assert all(speed["cpu_seconds"] > speed["empty_event_seconds"] > 0 for speed in first)
