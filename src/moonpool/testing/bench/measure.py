"""Rows of the benchmark, and how they are measured."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable

import msgspec

MICROSECOND_NS = 1_000
GIGABYTE = 1e9


class Row(msgspec.Struct, frozen=True):
    """One number beside the machine's own. ratio is value / limit; both None where the machine has no such limit.

    bar: what was to be reached, in words; reached: whether it was. None: there is no bar.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    bar: str | None = None
    reached: bool | None = None


class Effort(msgspec.Struct, frozen=True):
    """How long to measure: passes of a bandwidth row, calls of a latency row."""

    pass_count: int = 7
    call_count: int = 3_000


def row(name: str, value: float, unit: str, *, limit: float | None = None) -> Row:
    """A row with its ratio."""
    return Row(name, value, unit, limit, value / limit if limit else None)


def in_turns(works: Iterable[Callable[[], object]], *, pass_count: int) -> list[float]:
    """Median seconds of each work, after one pass to warm up. They run in turns, so that whatever else the
    machine does meets all of them alike.
    """
    chosen = list(works)
    for work in chosen:
        work()
    seconds: list[list[float]] = [[] for _ in chosen]
    for _ in range(pass_count):
        for work, taken in zip(chosen, seconds, strict=True):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in seconds]


def call_times_us(call: Callable[[int], object], *, call_count: int) -> list[float]:
    """Microseconds of each of call(0), call(1) …, sorted; garbage is collected before, not meanwhile."""
    for number in range(call_count // 10):
        call(number)
    taken: list[int] = []
    clock = time.perf_counter_ns
    gc.collect()
    gc.disable()
    try:
        for number in range(call_count):
            began = clock()
            call(number)
            taken.append(clock() - began)
    finally:
        gc.enable()
    return [nanoseconds / MICROSECOND_NS for nanoseconds in sorted(taken)]


def percentile(ordered: list[float], percent: float) -> float:
    """The smallest measured value that so many percent do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
