"""The whole benchmark, on a node of its own in another process and a temporary folder."""

from __future__ import annotations

import fnmatch
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from moonpool import _native
from moonpool.testing.bench.asking import SchedulerStep, cpu_rows, exists_rows, latency_rows, step_rows
from moonpool.testing.bench.indexing import index_rows
from moonpool.testing.bench.machine import MIB, Machine, working_set_bytes
from moonpool.testing.bench.measure import Effort, Row, call_times_us, percentile, row
from moonpool.testing.bench.moving import Bench, batch_rows, require_all, single_rows, small_rows
from moonpool.testing.bench.spinner import awake
from moonpool.testing.cluster import Cluster

if TYPE_CHECKING:
    from moonpool.config import Config

# Every row, by what is measured together.
INDEX_NAMES = ("index.events", "index.bytes_per_entry", "index.match")
CALL_NAMES = (
    "machine.ping_pong.64B.p50",
    "pool.get_into.shm.4KiB.p50",
    "pool.view.4KiB.p50",
    "pool.view.64MiB.p50",
    "pool.put.shm.4KiB.p50",
    "pool.exists.single.p50",
    "pool.exists.batch128",
    "pool.put.shm.batch64.4KiB",
    "pool.get_into.shm.batch64.4KiB",
)
MOVING_NAMES = (
    *(
        f"pool.{verb}.shm.{values}"
        for values in ("1MiB", "4MiB", "64MiB", "batch64.64KiB", "blocks.60x48KiB")
        for verb in ("put", "get_into")
    ),
    "pool.get_into.shm.1MiB.cpu",
)
STEP_NAMES = ("connector.schedule_step", "connector.schedule_step.p99")

STEP_BLOCK_COUNT = 1_000
STEP_NAMESPACE_ID = 1


class Prompt(msgspec.Struct, frozen=True):
    """A prompt that the node holds whole, for the scheduler's look-up."""

    namespace_id: int
    block_hashes: tuple[bytes, ...]


# Makes the scheduler's side of a connector for a node, and the call that looks a prompt up. The command line gives
# it, because this room does not know the connectors.
StepMaker = Callable[["Config", Prompt], SchedulerStep]


class BenchSettings(msgspec.Struct, frozen=True):
    """What to measure and how long. only: patterns of row names, as in a shell; empty: all."""

    effort: Effort = Effort()
    only: tuple[str, ...] = ()
    working_set_bytes: int = 0  # 0: four times the last level of cache

    def wants(self, names: Iterable[str]) -> bool:
        """Whether one of these rows is asked for."""
        return not self.only or any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.only)


def run(settings: BenchSettings, *, make_step: StepMaker, progress: Callable[[str], None]) -> Iterator[Row]:
    """The rows as they are measured. progress is told what is measured next.

    Raises PeerUnavailable or AssertionError when the benchmark's own processes do not start.
    """
    for measured in _all_rows(settings, make_step, progress):
        if settings.wants([measured.name]):
            yield measured


def _all_rows(settings: BenchSettings, make_step: StepMaker, progress: Callable[[str], None]) -> Iterator[Row]:
    if settings.wants(INDEX_NAMES):
        progress("the block index")
        yield from index_rows()
    if not settings.wants((*CALL_NAMES, *MOVING_NAMES, *STEP_NAMES)):
        return
    byte_count = settings.working_set_bytes or working_set_bytes()
    progress("starting a node and a peer process")
    arena_bytes = byte_count + MIB  # so that two halves of the working set fit, with their headers
    node_settings = {"node.arena_bytes": arena_bytes, "telemetry.log_level": "warning"}
    with (
        tempfile.TemporaryDirectory(prefix="moonpool-bench-") as folder,
        Cluster(folder, segment_bytes=4 * arena_bytes, directory=False, settings=node_settings) as cluster,
        Machine(byte_count) as machine,
        cluster.connect() as pool,
    ):
        bench = Bench(pool, machine, settings.effort)
        pool.register(machine.memory)
        _fill(bench, segment_bytes=4 * arena_bytes)
        yield from _node_rows(bench, cluster, settings, progress=progress)
        if settings.wants(STEP_NAMES):
            progress("the scheduler's look-up")
            with awake():
                step = make_step(cluster.config, _store_prompt(bench))
                round_trip_us = _round_trip_us(bench)
                yield from step_rows(step, call_count=settings.effort.call_count, round_trip_us=round_trip_us)


def _node_rows(
    bench: Bench, cluster: Cluster, settings: BenchSettings, *, progress: Callable[[str], None]
) -> Iterator[Row]:
    if settings.wants(CALL_NAMES):
        progress("small calls")
        with awake():
            round_trip_us = _round_trip_us(bench)
            yield row("machine.ping_pong.64B.p50", round_trip_us, "us")
            yield from latency_rows(bench, round_trip_us=round_trip_us)
            yield from exists_rows(bench, round_trip_us=round_trip_us)
            progress("batches of 4 KiB")
            yield from small_rows(bench, round_trip_us=round_trip_us)
    if settings.wants(MOVING_NAMES):
        progress("values of 1 to 64 MiB")
        yield from single_rows(bench)
        progress("batches and blocks")
        yield from batch_rows(bench)
        progress("CPU time")
        yield from cpu_rows(bench, node_process_id=cluster.node.process_id)


def _round_trip_us(bench: Bench) -> float:
    times_us = call_times_us(bench.machine.ping_pong, call_count=2 * bench.effort.call_count)
    return percentile(times_us, 50)


def _fill(bench: Bench, *, segment_bytes: int) -> None:
    """Put until the segment is full, so that every page is mapped and every put finds its room by evicting."""
    value = memoryview(bench.machine.memory)[: 4 * MIB]
    for name, _ in zip(bench.names(), range(segment_bytes // len(value) + 1), strict=False):
        require_all(bench.pool.put([name], [value]))


def _store_prompt(bench: Bench) -> Prompt:
    hashes = [number.to_bytes(32, "big") for number in range(1, STEP_BLOCK_COUNT + 1)]
    hints = array("Q", range(1, STEP_BLOCK_COUNT + 1))
    tags = _native.Tags(STEP_NAMESPACE_ID, hints, array("Q", [0, *hints[:-1]]))
    keys = [b"bench/prompt/" + block_hash for block_hash in hashes]
    require_all(bench.pool.put(keys, [b"block"] * STEP_BLOCK_COUNT, tags=tags))
    return Prompt(STEP_NAMESPACE_ID, tuple(hashes))
