"""Rows that move bytes: single values, batches, and engine blocks of many pieces."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from moonpool import _native
from moonpool.errors import UsageError
from moonpool.pool.client import Pool
from moonpool.pool.values import Pieces
from moonpool.testing.bench.machine import Machine
from moonpool.testing.bench.measure import GIGABYTE, Effort, Row, in_turns, row

KIB = 1024
MIB = 1024 * KIB
BATCH_COUNT = 64
BLOCK_PIECE_COUNT = 60
BLOCK_PIECE_BYTES = 48 * KIB
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Bench:
    """What every row needs: a pool on a node of its own, the machine's limits, and how long to measure."""

    pool: Pool
    machine: Machine
    effort: Effort
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def names(self) -> Iterator[bytes]:
        """Keys that nobody has used."""
        return (b"bench/%d" % number for number in self.numbers)


class Batches:
    """The working set cut into batches of values of one size, with keys of their own."""

    def __init__(self, bench: Bench, *, value_bytes: int, batch_count: int) -> None:
        machine = bench.machine
        batch_bytes = value_bytes * batch_count
        self.pool = bench.pool
        self.byte_count = machine.byte_count // batch_bytes * batch_bytes
        self.value_count = self.byte_count // value_bytes
        self._names = bench.names()
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

    def __init__(self, bench: Bench) -> None:
        machine = bench.machine
        block_bytes = BLOCK_PIECE_COUNT * BLOCK_PIECE_BYTES
        block_count = machine.byte_count // block_bytes
        region_bytes = block_count * BLOCK_PIECE_BYTES
        bases = [machine.address + region * region_bytes for region in range(BLOCK_PIECE_COUNT)]
        self.pool = bench.pool
        self.byte_count = block_count * block_bytes
        self._layout = _native.Layout(
            array("Q", bases),
            array("Q", [BLOCK_PIECE_BYTES] * BLOCK_PIECE_COUNT),
            array("Q", [BLOCK_PIECE_BYTES] * BLOCK_PIECE_COUNT),
            block_count,
        )
        self._numbers = array("Q", range(block_count))
        self._names = bench.names()
        self._stored: list[bytes] = []

    def put(self) -> None:
        """Store every block once, in one call, under new keys."""
        self._stored = list(itertools.islice(self._names, len(self._numbers)))
        require_all(self.pool.put_blocks(self._layout, self._numbers, self._stored, timeout_ms=TIMEOUT_MS))

    def get(self) -> None:
        """Read what was put last, in one call."""
        require_all(self.pool.get_blocks(self._layout, self._numbers, self._stored, timeout_ms=TIMEOUT_MS))


def single_rows(bench: Bench) -> Iterator[Row]:
    """GB/s of values of 1 to 64 MiB, one a call."""
    for mib in (1, 4, 64):
        batches = Batches(bench, value_bytes=mib * MIB, batch_count=1)
        yield from _bandwidths(bench, batches, f"{mib}MiB", piece_bytes=mib * MIB)


def batch_rows(bench: Bench) -> Iterator[Row]:
    """GB/s of 64 values of 64 KiB a call, and of vLLM blocks."""
    batches = Batches(bench, value_bytes=64 * KIB, batch_count=BATCH_COUNT)
    yield from _bandwidths(bench, batches, "batch64.64KiB", piece_bytes=MIB)
    yield from _bandwidths(bench, Blocks(bench), "blocks.60x48KiB", piece_bytes=MIB)


def small_rows(bench: Bench, *, round_trip_us: float) -> Iterator[Row]:
    """Values of 4 KiB a second, 64 a call. The limit: one ping-pong a call and the copies."""
    batches = Batches(bench, value_bytes=4 * KIB, batch_count=BATCH_COUNT)
    machine, pass_count = bench.machine, bench.effort.pass_count
    round_trips_s = batches.value_count / BATCH_COUNT * round_trip_us / 1e6
    put_s, copy_s = in_turns([batches.put, lambda: machine.copy_in(MIB)], pass_count=pass_count)
    limit = batches.value_count / (copy_s + round_trips_s)
    yield row("pool.put.shm.batch64.4KiB", batches.value_count / put_s, "objects/s", limit=limit)
    get_s, copy_s = in_turns([batches.get, lambda: machine.copy_out(MIB)], pass_count=pass_count)
    limit = batches.value_count / (copy_s + round_trips_s)
    yield row("pool.get_into.shm.batch64.4KiB", batches.value_count / get_s, "objects/s", limit=limit)


def _bandwidths(bench: Bench, values: Batches | Blocks, name: str, *, piece_bytes: int) -> Iterator[Row]:
    verbs: list[tuple[str, Callable[[], None], Callable[[int], None]]] = [
        ("put", values.put, bench.machine.copy_in),
        ("get_into", values.get, bench.machine.copy_out),
    ]
    for verb, work, copy in verbs:
        limit_work = _bound(copy, piece_bytes)
        work_s, copy_s = in_turns([work, limit_work], pass_count=bench.effort.pass_count)
        copied = bench.machine.byte_count // piece_bytes * piece_bytes
        yield row(
            f"pool.{verb}.shm.{name}",
            values.byte_count / work_s / GIGABYTE,
            "GB/s",
            limit=copied / copy_s / GIGABYTE,
        )


def _bound(copy: Callable[[int], None], piece_bytes: int) -> Callable[[], None]:
    return lambda: copy(piece_bytes)


def require_all(results: Sequence[Any]) -> None:
    """A benchmark of failures would be fast and worthless."""
    if not all(results):
        failed = next(result for result in results if not result)
        raise UsageError(f"the benchmark's own node refused a call: {failed}")
