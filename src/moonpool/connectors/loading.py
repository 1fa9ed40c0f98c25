"""Loads in the background: one thread a worker, in order, each with a deadline.

A load is reported exactly once: when all its blocks are verified and applied, or at its first miss, at its deadline
or when it was cancelled, and never before the copying has stopped. Until then its blocks belong to it, so a
cancelled load leaves no writer behind.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from moonpool.connectors.plans import BlockRun, LoadOrder, LoadReport
from moonpool.connectors.request_reasons import CANCELLED, DEADLINE

logger = logging.getLogger("vllm.moonpool")
INTERNAL = "internal"


class LoadLimits(NamedTuple):
    """``deadline_ms`` for a whole load, ``call_ms`` for one native call of it."""

    deadline_ms: int = 10_000
    call_ms: int = 400


class RunResult(NamedTuple):
    """Of one native read of some blocks of a run."""

    byte_count: int
    failure: str  # label of the first reason; empty when every block was verified and applied


class Source(Protocol):
    """Where blocks come from."""

    def read(self, order: LoadOrder, run: BlockRun, timeout_ms: int) -> RunResult:
        """Copy the run's blocks from the pool into the engine's blocks."""
        ...

    def call_block_count(self, kv_group: int) -> int:
        """Blocks of this group that one `read` may take."""
        ...


def split_run(run: BlockRun, *, block_count_max: int) -> Iterator[BlockRun]:
    """The run in parts of at most ``block_count_max`` blocks, in order."""
    count = len(run.block_hashes)
    if count <= block_count_max:
        yield run
        return
    for begin in range(0, count, block_count_max):
        end = min(count, begin + block_count_max)
        yield BlockRun(
            kv_group=run.kv_group,
            first=run.first + begin,
            parent_hash=run.block_hashes[begin - 1] if begin else run.parent_hash,
            block_hashes=run.block_hashes[begin:end],
            block_numbers=run.block_numbers[begin:end],
        )


class Loader:
    """Loads of one worker. `submit`, `cancel` and `take_finished` never wait."""

    def __init__(self, source: Source, *, limits: LoadLimits, clock_ms: Callable[[], float]) -> None:
        self._source = source
        self._limits = limits
        self._clock_ms = clock_ms
        self._orders: collections.deque[LoadOrder] = collections.deque()
        self._cancelled: set[str] = set()
        self._unreported: set[str] = set()
        self._finished: dict[str, LoadReport] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def submit(self, order: LoadOrder) -> None:
        """Begin as soon as the loads before are done. RuntimeError, and nothing submitted, when no thread can start."""
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="moonpool-load", daemon=True)
                thread.start()
                self._thread = thread
            self._orders.append(order)
            self._unreported.add(order.request_id)
            self._changed.notify_all()

    def cancel(self, request_id: str) -> None:
        """Stop this load soon; it is reported all the same, once nothing writes any more."""
        with self._changed:
            if request_id in self._unreported:
                self._cancelled.add(request_id)

    def take_finished(self) -> dict[str, LoadReport]:
        """What has ended since the last call."""
        with self._changed:
            finished, self._finished = self._finished, {}
            self._unreported.difference_update(finished)
            self._cancelled.difference_update(finished)
        return finished

    @property
    def unreported_count(self) -> int:
        """Loads that were submitted and not yet taken as finished."""
        return len(self._unreported)

    def wait_idle(self, timeout_ms: float) -> bool:
        """Wait until every submitted load has ended; for shutdown and tests."""
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self._finished) >= len(self._unreported), timeout=timeout_ms / 1000
            )

    def stop(self, timeout_ms: float) -> bool:
        """Cancel everything and end the thread. False when it did not end in time (its call is bounded)."""
        with self._changed:
            self._stopping = True
            self._cancelled.update(self._unreported)
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_ms / 1000)
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._stopping)
                if not self._orders:
                    return
                order = self._orders.popleft()
            try:
                report = self._load(order)
            except Exception:
                # The order must be reported all the same: an unreported one would keep its blocks for ever.
                logger.exception("moonpool: a load failed in an unforeseen way")
                report = LoadReport(0, 0, 0.0, INTERNAL)
            with self._changed:
                self._finished[order.request_id] = report
                self._changed.notify_all()

    def _load(self, order: LoadOrder) -> LoadReport:
        began_ms = self._clock_ms()
        deadline_ms = began_ms + self._limits.deadline_ms
        block_count = byte_count = 0
        failure = ""
        for run in order.runs:
            for part in split_run(run, block_count_max=self._source.call_block_count(run.kv_group)):
                failure = self._obstacle(order, deadline_ms)
                if failure:
                    break
                left_ms = max(1, int(deadline_ms - self._clock_ms()))
                result = self._source.read(order, part, min(self._limits.call_ms, left_ms))
                byte_count += result.byte_count
                failure = result.failure
                if failure:
                    break
                block_count += len(part.block_hashes)
            if failure:
                break
        return LoadReport(block_count, byte_count, self._clock_ms() - began_ms, failure)

    def _obstacle(self, order: LoadOrder, deadline_ms: float) -> str:
        if order.request_id in self._cancelled:
            return CANCELLED
        return DEADLINE if self._clock_ms() >= deadline_ms else ""
