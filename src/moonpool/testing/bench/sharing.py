"""A row of the interpreter's lock: what a pure-Python loop keeps of its speed while this process moves bytes."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from moonpool.testing.bench.measure import Row, row
from moonpool.testing.bench.moving import MIB, Batches
from moonpool.testing.bench.stage import Stage
from moonpool.testing.bench.topics import Topic, ratio_at_least

TRANSFER_BYTES = 1024 * MIB
VALUE_BYTES = 64 * MIB
STEPS_PER_LOOK = 2_000


def loop_rows(stage: Stage) -> Iterator[Row]:
    """Steps a second of a Python loop while another thread reads 1 GiB from the pool; the limit: while it copies as
    much between the same memories without the pool, in calls as large that hold the lock as little.
    """
    values = Batches(stage, value_bytes=VALUE_BYTES, batch_count=1)
    values.put()
    pass_count = max(1, TRANSFER_BYTES // values.byte_count)
    reading: list[float] = []
    copying: list[float] = []
    for _ in range(stage.effort.pass_count):
        reading.append(_steps_per_s(lambda: _repeat(values.get, pass_count)))
        copying.append(_steps_per_s(lambda: _repeat(partial(stage.machine.copy_out, VALUE_BYTES), pass_count)))
    yield row(
        "python.loop.during_get_into.1GiB", statistics.median(reading) / 1e6, "M steps/s",
        limit=statistics.median(copying) / 1e6,
    )  # fmt: skip


def _repeat(work: Callable[[], None], count: int) -> None:
    for _ in range(count):
        work()


def _steps_per_s(load: Callable[[], None]) -> float:
    thread = threading.Thread(target=load)
    count = 0
    thread.start()
    began = time.perf_counter()
    while thread.is_alive():
        for _ in range(STEPS_PER_LOOK):
            count += 1
    seconds = time.perf_counter() - began
    thread.join()
    return count / seconds


TOPICS = (
    Topic("a Python loop beside a transfer", {"python.loop.during_get_into.1GiB": ratio_at_least(0.9)}, loop_rows),
)
