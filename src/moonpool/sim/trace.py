"""Traces of requests in Mooncake's format: one JSON object a line (FAST'25 release, `FAST25-release/traces`).

A line holds `timestamp` (ms from the start), `input_length` and `output_length` (tokens) and `hash_ids`, one id for
each block of the prompt. Ids cover the whole prefix: equal ids mean an equal prompt up to and including that block.
"""

from __future__ import annotations

import io
import lzma
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from typing import IO

import msgspec

from moonpool.errors import UsageError

BLOCK_TOKENS = 512  # of Mooncake's traces
STAND_IN = "toolagent-standin"  # made up: the trace of that name is not held
STANDARD_INPUT = "-"
XZ_START = b"\xfd7zXZ\0"
SHIPPED = ("conversation", "synthetic")


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request of a trace or workload: about 1 kB with 24 blocks, so that a million fit in a gigabyte."""

    arrival_s: float
    """Seconds from the start of the trace."""
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...]
    """One for each block of the prompt, the last of which may be partial; equal ids mean equal prefixes."""


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_trace(source: str, *, block_tokens: int = BLOCK_TOKENS) -> Iterator[Request]:
    """The requests of a trace in the order of their arrival, read lazily.

    Args:
        source: the name of a trace (`conversation`, `synthetic`, `toolagent-standin`), a path, or `-` for standard
            input; what is packed with xz is unpacked.
        block_tokens: tokens of one block of this trace.

    Raises:
        UsageError: there is no such file, or a line is no request; the message names the line.
    """
    if source == STAND_IN:
        from moonpool.sim.workloads.toolagent import ToolAgentStandIn  # it makes requests, so it imports this module

        yield from ToolAgentStandIn().requests()
        return
    with _open(source) as stream:
        yield from parse_trace(stream, name=source, block_tokens=block_tokens)


def parse_trace(lines: Iterable[bytes], *, name: str, block_tokens: int = BLOCK_TOKENS) -> Iterator[Request]:
    """The requests on these lines; empty lines are skipped. `name` is what an error calls the trace."""
    decoder = msgspec.json.Decoder(_Line)
    arrived_s = 0.0
    number = 0
    try:
        for text in lines:
            number += 1
            if text.isspace():
                continue
            request = _request_of(decoder.decode(text), block_tokens)
            if request.arrival_s < arrived_s:
                raise ValueError(f"it arrives before the line above it ({arrived_s:g} s): sort the trace by timestamp")
            arrived_s = request.arrival_s
            yield request
    except (lzma.LZMAError, EOFError) as error:
        raise UsageError(f"{name}: damaged after line {number}: {error}", kind="bad_file") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"{name}, line {number}: no request of a trace: {error}", kind="bad_file") from error


def _request_of(line: _Line, block_tokens: int) -> Request:
    block_count = len(line.hash_ids)
    whole = line.input_length // block_tokens
    if line.timestamp < 0:
        raise ValueError(f"timestamp is {line.timestamp:g}, at least 0 expected")
    if line.input_length < 1 or line.output_length < 0:
        raise ValueError(f"{line.input_length} tokens in and {line.output_length} out, at least 1 and 0 expected")
    if not whole <= block_count <= -(-line.input_length // block_tokens):
        raise ValueError(f"{block_count} ids for {line.input_length} tokens in blocks of {block_tokens}")
    return Request(line.timestamp / 1_000, line.input_length, line.output_length, line.hash_ids)


@contextmanager
def _open(source: str) -> Iterator[IO[bytes]]:
    with ExitStack() as opened:
        if source == STANDARD_INPUT:
            raw = opened.enter_context(io.FileIO(sys.stdin.fileno(), closefd=False))
        elif source in SHIPPED:
            file = resources.files("moonpool.sim").joinpath("traces", f"{source}.jsonl.xz")
            raw = opened.enter_context(resources.as_file(file)).open("rb", buffering=0)
            opened.callback(raw.close)
        elif Path(source).is_file():
            raw = opened.enter_context(Path(source).open("rb", buffering=0))
        else:
            names = ", ".join([*SHIPPED, STAND_IN])
            raise UsageError(f"{source}: no such trace: give a file, `-` for standard input, or one of {names}")
        stream = io.BufferedReader(raw)
        packed = stream.peek(len(XZ_START)).startswith(XZ_START)
        yield opened.enter_context(lzma.open(stream)) if packed else stream
