"""What the rows share: a node of its own, a pool on it and a peer process, each started when it is first asked for."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from moonpool.errors import UsageError
from moonpool.pool.results import Results
from moonpool.testing.bench.machine import MIB, Machine, working_set_bytes
from moonpool.testing.bench.measure import Effort, call_times_us, percentile
from moonpool.testing.bench.spinner import awake
from moonpool.testing.cluster import Cluster

if TYPE_CHECKING:
    from moonpool.config import Config
    from moonpool.pool.client import Pool

FILL_BYTES = 4 * MIB
SEGMENT_ARENAS = 4


class Prompt(msgspec.Struct, frozen=True):
    """A prompt that the node holds whole, for the scheduler's look-up."""

    namespace_id: int
    block_hashes: tuple[bytes, ...]


# Looks a prompt up as an engine's scheduler does in its step: (request number) → tokens found.
SchedulerStep = Callable[[int], int]
# Makes the scheduler's side of a connector for a node. The command line gives it, because this room does not know
# the connectors.
StepMaker = Callable[["Config", Prompt], SchedulerStep]


class Stage:
    """Shared by the topics of one run, and ended with it."""

    def __init__(self, effort: Effort, *, make_step: StepMaker, byte_count: int = 0) -> None:
        """byte_count: the working set; 0: four times the last level of cache."""
        self.effort = effort
        self.make_step = make_step
        self.byte_count = byte_count or working_set_bytes()
        self._numbers = itertools.count()
        self._open = contextlib.ExitStack()

    @cached_property
    def machine(self) -> Machine:
        """The machine's own limits."""
        return self._open.enter_context(Machine(self.byte_count))

    @cached_property
    def cluster(self) -> Cluster:
        """A node whose segment has room for several working sets."""
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="moonpool-bench-"))
        settings = {"node.arena_bytes": self._arena_bytes, "telemetry.log_level": "warning"}
        return self._open.enter_context(
            Cluster(folder, segment_bytes=SEGMENT_ARENAS * self._arena_bytes, directory=False, settings=settings)
        )

    @cached_property
    def pool(self) -> Pool:
        """A client of that node. Its segment is full, so that every page is mapped and every put evicts."""
        pool = self._open.enter_context(self.cluster.connect())
        pool.register(self.machine.memory)
        value = memoryview(self.machine.memory)[:FILL_BYTES]
        for name, _ in zip(self.names(), range(SEGMENT_ARENAS * self._arena_bytes // FILL_BYTES + 1), strict=False):
            require_all(pool.put([name], [value]))
        return pool

    @cached_property
    def round_trip_us(self) -> float:
        """p50 of a ping-pong of 64 bytes between two processes, with the cores awake."""
        with awake():
            times_us = call_times_us(self.machine.ping_pong, call_count=2 * self.effort.call_count)
        return percentile(times_us, 50)

    def names(self) -> Iterator[bytes]:
        """Keys that nobody has used."""
        return (b"bench/%d" % number for number in self._numbers)

    @property
    def _arena_bytes(self) -> int:
        return self.byte_count + MIB  # two halves of the working set fit, with their headers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()


def require_all(results: Sequence[Any]) -> None:
    """A benchmark of failures would be fast and worthless."""
    worked_count = results.worked_count if isinstance(results, Results) else sum(map(bool, results))
    if worked_count < len(results):
        failed = next(result for result in results if not result)
        raise UsageError(f"the benchmark's own node refused a call: {failed}")
