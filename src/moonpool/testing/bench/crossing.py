"""Rows of a pool whose node is reached by TCP, beside bare TCP sockets that move the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from array import array
from collections.abc import Callable, Iterator
from functools import partial

from moonpool.pool.client import Pool
from moonpool.pool.values import Pieces
from moonpool.testing.bench import transfer
from moonpool.testing.bench.measure import GIGABYTE, Row, in_turns, row
from moonpool.testing.bench.stage import Stage, require_all
from moonpool.testing.bench.topics import Bar, Topic, ratio_at_least
from moonpool.testing.cluster import Cluster
from moonpool.testing.processes import free_port

MIB = 1024 * 1024
SIZES = {"1MiB": MIB, "4MiB": 4 * MIB, "64MiB": 64 * MIB}
PASS_BYTES = 256 * MIB
TIMEOUT_MS = 60_000


class Crossing:
    """A node in another process, reached by TCP alone, and a bare socket to a third one."""

    def __init__(self, stage: Stage, bare: transfer.Bench, pool: Pool) -> None:
        self.bare = bare
        self.pool = pool
        self.pass_count = stage.effort.pass_count
        self.address, _ = pool.register(bare.memory)
        self._numbers = itertools.count()

    def rates(self, value_bytes: int) -> list[float]:
        """GB/s of put, bare write, get_into and bare read, value by value."""
        offsets = list(range(0, min(PASS_BYTES, self.bare.byte_count) - value_bytes + 1, value_bytes))
        stored: list[bytes] = []

        def put() -> None:
            stored[:] = [b"crossing/%d" % next(self._numbers) for _ in offsets]
            for key, offset in zip(stored, offsets, strict=True):
                require_all(self.pool.put([key], self._piece(offset, value_bytes), timeout_ms=TIMEOUT_MS))

        def get() -> None:
            for key, offset in zip(stored, offsets, strict=True):
                require_all(self.pool.get_into([key], self._piece(offset, value_bytes), timeout_ms=TIMEOUT_MS))

        works: list[Callable[[], None]] = [
            put,
            partial(_walk, self.bare.bare_write, offsets, value_bytes),
            get,
            partial(_walk, self.bare.bare_read, offsets, value_bytes),
        ]
        taken = in_turns(works, pass_count=self.pass_count)
        return [len(offsets) * value_bytes / seconds / GIGABYTE for seconds in taken]

    def _piece(self, offset: int, value_bytes: int) -> Pieces:
        return Pieces(array("Q", [self.address + offset]), array("Q", [value_bytes]))


@contextlib.contextmanager
def crossing(stage: Stage) -> Iterator[Crossing]:
    """Everything that the rows need, running."""
    byte_count = max(PASS_BYTES, stage.byte_count)
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "node.listen": address,
        "node.arena_bytes": 2 * byte_count,
        "telemetry.log_level": "warning",
    }
    with (
        tempfile.TemporaryDirectory(prefix="moonpool-bench-") as folder,
        Cluster(folder, segment_bytes=4 * byte_count, directory=False, settings=settings) as cluster,
        cluster.connect(node=address, remote_reads=False) as pool,
        transfer.Bench(byte_count, stage.effort) as bare,
    ):
        yield Crossing(stage, bare, pool)


def crossing_rows(stage: Stage) -> Iterator[Row]:
    """GB/s of single values, verified."""
    with crossing(stage) as ready:
        for name, value_bytes in SIZES.items():
            rates = ready.rates(value_bytes)
            yield row(f"pool.put.tcp.{name}", rates[0], "GB/s", limit=rates[1])
            yield row(f"pool.get_into.tcp.{name}", rates[2], "GB/s", limit=rates[3])


def _walk(move: transfer.Move, offsets: list[int], byte_count: int) -> None:
    for offset in offsets:
        move(offset, byte_count)


_BARS: dict[str, Bar | None] = {}
for _size in SIZES:
    _BARS[f"pool.put.tcp.{_size}"] = None
    _BARS[f"pool.get_into.tcp.{_size}"] = ratio_at_least(0.8)
TOPICS = (Topic("values of a node that is reached by TCP", _BARS, crossing_rows),)
