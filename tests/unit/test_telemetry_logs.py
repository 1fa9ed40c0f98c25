"""Logs: constant text, fields that cannot be mistaken, stderr only."""

import json
import logging
import re
from collections.abc import Iterator

import pytest

from moonpool.telemetry import configure, logger
from moonpool.telemetry.logs import format_fields


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger("moonpool")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before
    root.setLevel(before[1])


def test_line_is_time_level_room_event_and_fields_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logger("node").info("listening", path="/run/node.sock", segment_bytes=4096, warming=True, share=0.25)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO moonpool.node: listening "
        r"path=/run/node.sock segment_bytes=4096 warming=true share=0.25\n",
        err,
    )


def test_level_is_kept_and_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug")
    configure("warning")
    logger("node").info("not shown")
    logger("node").warning("shown")
    assert capsys.readouterr().err.count("shown") == 1


@pytest.mark.parametrize("value", ["a b", 'say "x"', "k=v", "line\nbreak", "", "ünï", "\x1b[31m"])
def test_value_that_could_mislead_is_quoted(value: str) -> None:
    text = format_fields({"key": value})
    assert "\n" not in text
    assert text.isascii()
    assert json.loads(text.removeprefix(" key=")) == value


def test_bytes_are_hexadecimal_and_long_values_are_cut() -> None:
    assert format_fields({"key": b"\x01\xff"}) == " key=01ff"
    assert len(format_fields({"key": "x" * 10_000})) < 2_100


def test_event_and_fields_ride_along_for_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="moonpool.node"):
        logger("node").info("100% done", count=1)
    (record,) = caplog.records
    assert record.getMessage() == "100% done count=1"
    assert (record.event, record.fields) == ("100% done", {"count": 1})  # type: ignore[attr-defined]


def test_exception_carries_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    try:
        raise ValueError("the cause")
    except ValueError:
        logger("node").exception("task ended")
    assert "the cause" in capsys.readouterr().err
