"""What the demo says: its sums, its promises, and that nothing it starts survives it."""

from __future__ import annotations

import asyncio
import io
import math
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from moonpool.errors import MoonpoolError
from moonpool.identity import RequestOutcome
from moonpool.testing import models
from moonpool.testing.chat import Answer, Token
from moonpool.testing.cluster import wait_until
from moonpool.testing.demo_report import Row, compare_rows, paired_difference, promises, summarize
from moonpool.testing.demo_stack import read_report, with_extra_config
from moonpool.testing.demo_view import print_result, result_document, summary_lines
from moonpool.testing.engines import EngineSpec, engine_command
from moonpool.testing.processes import Child, group_members, processes_naming
from moonpool.testing.workload import Part, Step

if TYPE_CHECKING:
    from pathlib import Path


def row(number: int, part: Part, *, engine: str = "B", text: str = "yes", ttft_ms: float = 100.0, prompt: int = 320,
        local: int = 0, pool: int | None = None, reason: str = "", error: str = "") -> Row:  # fmt: skip
    """A row with a pool when `pool` is given, else one of an engine alone."""
    step = Step(number=number, engine=engine, part=part, conversation="c", system="s" * 400, user=f"u{number}")
    answer = Answer(request_id=step.request_id, text=text, tokens=(Token(text=text, logprob=-0.1),), ttft_ms=ttft_ms,
                    prompt_token_count=prompt, cached_token_count=local, total_ms=ttft_ms + 1)  # fmt: skip
    outcome = None
    if pool is not None:
        outcome = RequestOutcome(
            request_id=f"chatcmpl-{step.request_id}-0",
            prompt_tokens=prompt,
            local_tokens=local,
            promised_tokens=pool,
            applied_tokens=pool,
            byte_count=pool * 1000,
            lookup_ms=1.0,
            load_ms=10.0,
            reason=reason,
        )
    messages = ({"role": "system", "content": step.system}, {"role": "user", "content": step.user})
    return Row(step=step, messages=messages, answer=None if error else answer, outcome=outcome, error=error)


def kept_run() -> list[Row]:
    return [
        row(1, Part.COLD, engine="A", pool=0),
        row(2, Part.ACROSS, pool=288),
        row(3, Part.UNIQUE, pool=0),
        row(4, Part.UNIQUE, pool=0),
        row(5, Part.NODE_KILLED, pool=0, reason="unavailable"),
        row(6, Part.NODE_BACK, pool=288),
    ]


def alone_run() -> list[Row]:
    return [row(item.step.number, item.step.part) for item in kept_run()]


def broken(rows: list[Row], alone: list[Row], why_text: str = "it was never stored") -> set[str]:
    return {item.text for item in promises(rows, compare_rows(rows, alone), why_text=why_text) if not item.kept}


def test_all_promises_are_kept_by_a_good_run() -> None:
    assert broken(kept_run(), alone_run()) == set()


def test_a_different_answer_breaks_a_promise() -> None:
    rows = kept_run()
    rows[1] = row(2, Part.ACROSS, pool=288, text="no")
    assert broken(rows, alone_run()) == {"all answers equal with and without the pool"}


def test_nothing_from_the_pool_breaks_a_promise() -> None:
    rows = kept_run()
    rows[1] = row(2, Part.ACROSS, pool=0)
    assert broken(rows, alone_run()) == {"B used what A had computed"}


def test_no_hit_after_the_restart_breaks_a_promise() -> None:
    rows = kept_run()
    rows[5] = row(6, Part.NODE_BACK, pool=0)
    assert broken(rows, alone_run()) == {"newly stored blocks hit again after the node is back"}


def test_a_failed_request_breaks_promises() -> None:
    rows = kept_run()
    rows[4] = row(5, Part.NODE_KILLED, error="HTTP 500")
    assert "no request failed" in broken(rows, alone_run())
    assert "B answers when the node is killed while it loads" in broken(rows, alone_run())


def test_a_request_that_failed_alone_breaks_a_promise() -> None:
    alone = alone_run()
    alone[0] = row(1, Part.COLD, error="HTTP 500")
    assert "all answers equal with and without the pool" in broken(kept_run(), alone)


def test_an_unexplained_miss_breaks_a_promise() -> None:
    assert broken(kept_run(), alone_run(), why_text="") == {"`moonpool why` explains the miss"}


def test_summary_counts_what_was_applied_not_what_was_promised() -> None:
    rows = kept_run()
    outcome = RequestOutcome(request_id="chatcmpl-demo-002-0", prompt_tokens=320, promised_tokens=288)
    rows[1] = msgspec.structs.replace(rows[1], outcome=outcome)
    found = summarize(rows, alone_run())
    assert found.pool_tokens == 0
    assert found.computed_with == 4 * 320


def test_summary_shares() -> None:
    found = summarize(kept_run(), alone_run())
    assert found.prompt_tokens == 4 * 320
    assert found.computed_with == 3 * 320 + 32
    assert found.computed_without == 4 * 320
    assert found.spared_share == pytest.approx(288 / 1280)
    assert found.load_bytes_per_s == pytest.approx(576_000 / 0.02 * 1e0, rel=0.7)


def test_unique_prompts_are_compared_in_pairs_with_their_noise() -> None:
    found = paired_difference({1: 110.0, 2: 190.0, 3: 300.0}, {1: 100.0, 2: 200.0, 3: 300.0})
    assert found.mean_ms == pytest.approx(0)
    assert found.noise_ms > 0
    assert found.within_noise
    assert not paired_difference({1: 200.0, 2: 201.0}, {1: 100.0, 2: 100.0}).within_noise
    assert math.isnan(paired_difference({1: 1.0}, {1: 1.0}).mean_ms)


def test_result_is_shown_and_written_with_every_request() -> None:
    rows, alone = kept_run(), alone_run()
    comparisons = compare_rows(rows, alone)
    kept = promises(rows, comparisons, why_text="because")
    summary = summarize(rows, alone)
    console = Console(record=True, width=200, file=io.StringIO())
    print_result(console, (rows, alone, comparisons), summary=summary, promises=kept)
    text = console.export_text()
    assert "CPU only" in text
    assert "BROKEN" not in text
    document = result_document((rows, alone, comparisons), summary=summary, promises=kept, seconds=1.0)
    assert [item["pool_tokens"] for item in document["requests"]] == [0, 288, 0, 0, 0, 288]
    assert document["ok"] is True
    assert any("within noise" in line for line in summary_lines(summary))


def test_report_file_is_read_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    assert read_report(path) == []
    path.write_bytes(b'{"request_id":"chatcmpl-demo-001-ab","applied_tokens":64,"new_field":1}\n{"request_id":"cut')
    assert [item.applied_tokens for item in read_report(path)] == [64]


def test_extra_config_is_merged_into_the_printed_flags() -> None:
    flags = [
        "--block-size",
        "32",
        "--kv-transfer-config",
        '{"kv_role":"kv_both","kv_connector_extra_config":{"a":"1"}}',
    ]
    merged = with_extra_config(flags, {"b": "2"})
    assert merged[:3] == ("--block-size", "32", "--kv-transfer-config")
    assert msgspec.json.decode(merged[3])["kv_connector_extra_config"] == {"a": "1", "b": "2"}
    with pytest.raises(MoonpoolError, match="kv-transfer-config"):
        with_extra_config(["--block-size", "32"], {})


def test_engine_command_names_model_port_and_connector(tmp_path: Path) -> None:
    spec = EngineSpec(name="A", model_folder=tmp_path, model_name="m", log_folder=tmp_path, prefix_caching=False,
                      connector_flags=("--kv-transfer-config", "{}"))  # fmt: skip
    command = engine_command(spec, 1234)
    assert "--no-enable-prefix-caching" in command
    assert command[command.index("--port") + 1] == "1234"
    assert command[command.index("--kv-transfer-config") + 1] == "{}"


@pytest.mark.process
def test_stopping_a_child_ends_its_whole_group(tmp_path: Path) -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); \
print('started', flush=True); time.sleep(600)"

    async def run() -> None:
        child = Child("sleeper", [sys.executable, "-c", script], log_path=tmp_path / "log", environment={"A": "b"})
        child.start()

        async def started() -> bool:
            return "started" in child.log_tail()

        await child.wait_until(started, what="started", seconds_max=30, progress=lambda text: None)
        assert len(group_members(child.process_id)) == 2
        await child.stop(grace_s=0.2)
        assert group_members(child.process_id) == []
        await child.stop()

    asyncio.run(run())


@pytest.mark.process
def test_a_child_that_ends_early_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    async def run() -> None:
        child = Child(
            "liar", [sys.executable, "-c", "print('my last words')"], log_path=tmp_path / "log", environment={}
        )
        child.start()

        async def never() -> bool:
            return False

        await child.wait_until(never, what="ready", seconds_max=30, progress=lambda text: None)

    with pytest.raises(MoonpoolError, match="my last words"):
        asyncio.run(run())


@pytest.mark.process
def test_processes_are_found_by_what_their_command_names(tmp_path: Path) -> None:
    async def run() -> None:
        line = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", str(tmp_path)]
        child = Child("named", line, log_path=tmp_path / "log", environment={})
        child.start()
        try:
            # An exec closes what Popen waits for before the new command line can be read.
            wait_until(lambda: processes_naming(str(tmp_path)), "the child's command line")
        finally:
            await child.stop(grace_s=1)
        assert processes_naming(str(tmp_path)) == []

    asyncio.run(run())


def test_a_model_folder_with_a_changed_byte_is_not_whole(tmp_path: Path) -> None:
    for name in models.REQUIRED_FILES:
        (tmp_path / name).write_text(name)
    assert models.folder_problem(tmp_path) == "not there yet"
    models._write_manifest(tmp_path)
    assert models.folder_problem(tmp_path) == ""
    (tmp_path / "config.json").write_text("other")
    assert "config.json is damaged" in models.folder_problem(tmp_path)
    (tmp_path / "config.json").unlink()
    assert "config.json is missing" in models.folder_problem(tmp_path)
    (tmp_path / models.MANIFEST).write_text("{")
    assert "damaged" in models.folder_problem(tmp_path)
