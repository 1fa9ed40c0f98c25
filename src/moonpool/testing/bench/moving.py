"""Rows that move bytes: single values, batches, and engine blocks of many pieces."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator
from functools import partial

from moonpool import _native
from moonpool.pool.values import Pieces
from moonpool.testing.bench.measure import GIGABYTE, Row, in_turns, row
from moonpool.testing.bench.spinner import awake
from moonpool.testing.bench.stage import Stage, require_all
from moonpool.testing.bench.topics import Bar, Topic, ratio_at_least, value_at_least

KIB = 1024
MIB = 1024 * KIB
BATCH_COUNT = 64
BLOCK_PIECE_COUNT = 60
BLOCK_PIECE_BYTES = 48 * KIB
TIMEOUT_MS = 60_000


class Batches:
    """The working set cut into batches of values of one size, with keys of their own."""

    def __init__(self, stage: Stage, *, value_bytes: int, batch_count: int) -> None:
        machine = stage.machine
        batch_bytes = value_bytes * batch_count
        self.pool = stage.pool
        self.byte_count = machine.byte_count // batch_bytes * batch_bytes
        self.value_count = self.byte_count // value_bytes
        self._names = stage.names()
        starts = range(machine.address, machine.address + self.byte_count, batch_bytes)
        ends = [range(start, start + batch_bytes, value_bytes) for start in starts]
        self._pieces = [Pieces(array("Q", addresses), array("Q", [value_bytes] * batch_count)) for addresses in ends]
        self._batch_count = batch_count
        self._stored: list[list[bytes]] = []

    def put(self) -> None:
        """Store the whole working set once, under new keys."""
        self._stored = []
        for pieces in self._pieces:
            keys = list(itertools.islice(self._names, self._batch_count))
            require_all(self.pool.put(keys, pieces, timeout_ms=TIMEOUT_MS))
            self._stored.append(keys)

    def get(self) -> None:
        """Read what was put last, all of it, into the place where it came from."""
        for keys, pieces in zip(self._stored, self._pieces, strict=True):
            require_all(self.pool.get_into(keys, pieces, timeout_ms=TIMEOUT_MS))


class Blocks:
    """A KV cache like vLLM's: 60 regions (30 layers, K and V), a block being one piece of each."""

    def __init__(self, stage: Stage) -> None:
        machine = stage.machine
        block_bytes = BLOCK_PIECE_COUNT * BLOCK_PIECE_BYTES
        block_count = machine.byte_count // block_bytes
        region_bytes = block_count * BLOCK_PIECE_BYTES
        bases = [machine.address + region * region_bytes for region in range(BLOCK_PIECE_COUNT)]
        self.pool = stage.pool
        self.byte_count = block_count * block_bytes
        self._layout = _native.Layout(
            array("Q", bases),
            array("Q", [BLOCK_PIECE_BYTES] * BLOCK_PIECE_COUNT),
            array("Q", [BLOCK_PIECE_BYTES] * BLOCK_PIECE_COUNT),
            block_count,
        )
        self._numbers = array("Q", range(block_count))
        self._names = stage.names()
        self._stored: list[bytes] = []

    def put(self) -> None:
        """Store every block once, in one call, under new keys."""
        self._stored = list(itertools.islice(self._names, len(self._numbers)))
        require_all(self.pool.put_blocks(self._layout, self._numbers, self._stored, timeout_ms=TIMEOUT_MS))

    def get(self) -> None:
        """Read what was put last, in one call."""
        require_all(self.pool.get_blocks(self._layout, self._numbers, self._stored, timeout_ms=TIMEOUT_MS))


def single_rows(stage: Stage, *, mib: int) -> Iterator[Row]:
    """GB/s of values of one size, one a call."""
    values = Batches(stage, value_bytes=mib * MIB, batch_count=1)
    yield from _bandwidths(stage, values, f"{mib}MiB", piece_bytes=mib * MIB)


def batch_rows(stage: Stage) -> Iterator[Row]:
    """GB/s of 64 values of 64 KiB a call."""
    values = Batches(stage, value_bytes=64 * KIB, batch_count=BATCH_COUNT)
    yield from _bandwidths(stage, values, "batch64.64KiB", piece_bytes=MIB)


def block_rows(stage: Stage) -> Iterator[Row]:
    """GB/s of 64 vLLM blocks a call."""
    yield from _bandwidths(stage, Blocks(stage), "blocks.60x48KiB", piece_bytes=MIB)


def small_rows(stage: Stage) -> Iterator[Row]:
    """Values of 4 KiB a second, 64 a call. The limit: one ping-pong a call and the copies."""
    values = Batches(stage, value_bytes=4 * KIB, batch_count=BATCH_COUNT)
    round_trips_s = values.value_count / BATCH_COUNT * stage.round_trip_us / 1e6
    verbs: list[tuple[str, Callable[[], None], Callable[[int], None]]] = [
        ("put", values.put, stage.machine.copy_in),
        ("get_into", values.get, stage.machine.copy_out),
    ]
    for verb, work, copy in verbs:
        with awake():
            work_s, copy_s = in_turns([work, partial(copy, MIB)], pass_count=stage.effort.pass_count)
        limit = values.value_count / (copy_s + round_trips_s)
        yield row(f"pool.{verb}.shm.batch64.4KiB", values.value_count / work_s, "objects/s", limit=limit)


def _bandwidths(stage: Stage, values: Batches | Blocks, name: str, *, piece_bytes: int) -> Iterator[Row]:
    verbs: list[tuple[str, Callable[[], None], Callable[[int], None]]] = [
        ("put", values.put, stage.machine.copy_in),
        ("get_into", values.get, stage.machine.copy_out),
    ]
    copied = stage.machine.byte_count // piece_bytes * piece_bytes
    for verb, work, copy in verbs:
        with awake():  # the cores of an engine's host do not sleep either
            work_s, copy_s = in_turns([work, partial(copy, piece_bytes)], pass_count=stage.effort.pass_count)
        limit = copied / copy_s / GIGABYTE
        yield row(f"pool.{verb}.shm.{name}", values.byte_count / work_s / GIGABYTE, "GB/s", limit=limit)


def _bars(name: str, *, put: Bar, get_into: Bar) -> dict[str, Bar | None]:
    return {f"pool.put.shm.{name}": put, f"pool.get_into.shm.{name}": get_into}


TOPICS = (
    Topic(
        "batches of 4 KiB",
        _bars("batch64.4KiB", put=value_at_least(400_000), get_into=value_at_least(800_000)),
        small_rows,
    ),
    Topic(
        "values of 1 MiB",
        _bars("1MiB", put=ratio_at_least(0.75), get_into=ratio_at_least(0.8)),
        partial(single_rows, mib=1),
    ),
    Topic(
        "values of 4 MiB",
        {"pool.put.shm.4MiB": None, "pool.get_into.shm.4MiB": ratio_at_least(0.9)},
        partial(single_rows, mib=4),
    ),
    Topic(
        "values of 64 MiB",
        _bars("64MiB", put=ratio_at_least(0.85), get_into=ratio_at_least(0.9)),
        partial(single_rows, mib=64),
    ),
    Topic(
        "batches of 64 KiB",
        _bars("batch64.64KiB", put=ratio_at_least(0.8), get_into=ratio_at_least(0.8)),
        batch_rows,
    ),
    Topic(
        "blocks of an engine",
        _bars("blocks.60x48KiB", put=ratio_at_least(0.8), get_into=ratio_at_least(0.8)),
        block_rows,
    ),
)
