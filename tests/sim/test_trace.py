"""Reading traces."""

from __future__ import annotations

import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from moonpool.errors import UsageError
from moonpool.sim.trace import Request, parse_trace, read_trace

LINE = b'{"timestamp": 1500, "input_length": 600, "output_length": 3, "hash_ids": [7, 9]}\n'
FIRST = Request(arrival_s=1.5, input_tokens=600, output_tokens=3, block_ids=(7, 9))


@pytest.mark.parametrize(
    ("name", "request_count", "block_count", "unique_count"),
    [("conversation", 12_031, 288_500, 182_790), ("synthetic", 3_993, 121_877, 43_924)],
)
def test_shipped_traces_are_those_of_the_release(
    name: str, request_count: int, block_count: int, unique_count: int
) -> None:
    requests = list(read_trace(name))
    blocks = [block for request in requests for block in request.block_ids]
    assert (len(requests), len(blocks), len(set(blocks))) == (request_count, block_count, unique_count)


def test_a_file_may_be_plain_or_compressed_and_have_empty_lines(tmp_path: Path) -> None:
    plain, packed = tmp_path / "trace.jsonl", tmp_path / "trace.jsonl.xz"
    plain.write_bytes(LINE + b"\n" + LINE)
    packed.write_bytes(lzma.compress(LINE + LINE))
    assert list(read_trace(str(plain))) == list(read_trace(str(packed))) == [FIRST, FIRST]


@pytest.mark.parametrize("pack", [bytes, lzma.compress], ids=["plain", "xz"])
def test_standard_input_is_a_trace(pack: object) -> None:
    program = "from moonpool.sim.trace import read_trace; print(sum(r.input_tokens for r in read_trace('-')))"
    given = lzma.compress(LINE * 3) if pack is lzma.compress else LINE * 3
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, check=True)
    assert done.stdout == b"1800\n"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{", "truncated"),
        (b"[1]", "object"),
        (LINE.replace(b"output_length", b"output"), "output_length"),
        (LINE.replace(b"600", b'"600"'), "input_length"),
        (LINE.replace(b"600", b"2000"), "2 ids for 2000 tokens"),
        (LINE.replace(b"600", b"0"), "0 tokens in"),
        (LINE.replace(b"1500", b"-1"), "timestamp is -1"),
        (LINE.replace(b"1500", b"1"), "sort the trace"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_a_bad_line_is_named(bad: bytes, says: str) -> None:
    requests = parse_trace([LINE, bad], name="mine.jsonl")
    assert next(requests) == FIRST
    with pytest.raises(UsageError, match=r"mine\.jsonl, line 2: ") as raised:
        next(requests)
    assert says in str(raised.value)


def test_blocks_of_other_sizes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    path.write_bytes(b'{"timestamp": 0, "input_length": 33, "output_length": 1, "hash_ids": [1, 2, 3]}\n')
    assert [request.block_ids for request in read_trace(str(path), block_tokens=16)] == [(1, 2, 3)]


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError, match="conversation, synthetic"):
        list(read_trace("nothing"))


def test_a_damaged_archive_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.xz"
    path.write_bytes(lzma.compress(LINE * 100)[:-20])
    with pytest.raises(UsageError, match="damaged after line"):
        list(read_trace(str(path)))
