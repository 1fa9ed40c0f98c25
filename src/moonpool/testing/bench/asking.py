"""Rows of small calls: how long one takes, and how many keys a second."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from moonpool.testing.bench.measure import Row, call_times_us, in_turns, percentile, row
from moonpool.testing.bench.moving import KIB, MIB, TIMEOUT_MS, Batches, Bench, require_all

KEY_COUNT = 1_024
EXISTS_COUNT = 128
LARGE_BYTES = 64 * MIB
CPU_CALLS = 2_000

# Looks a prompt up as an engine's scheduler does in its step: (request number) → blocks found.
SchedulerStep = Callable[[int], int]


def latency_rows(bench: Bench, *, round_trip_us: float) -> Iterator[Row]:
    """p50 microseconds of single calls, beside a ping-pong of 64 bytes."""
    pool, value, target = bench.pool, bytes(4 * KIB), bytearray(4 * KIB)
    names = bench.names()
    keys = list(itertools.islice(names, KEY_COUNT))
    require_all(pool.put(keys, [value] * KEY_COUNT, timeout_ms=TIMEOUT_MS))
    large = next(names)
    require_all(pool.put([large], [memoryview(bench.machine.memory)[:LARGE_BYTES]], timeout_ms=TIMEOUT_MS))

    def get_into(number: int) -> None:
        require_all(pool.get_into([keys[number % KEY_COUNT]], [target]))

    def put(_number: int) -> None:
        require_all(pool.put([next(names)], [value]))

    def exists(number: int) -> None:
        require_all(pool.exists([keys[number % KEY_COUNT]]))

    calls: list[tuple[str, Callable[[int], None]]] = [
        ("pool.get_into.shm.4KiB.p50", get_into),
        ("pool.view.4KiB.p50", lambda number: view(keys[number % KEY_COUNT])),
        ("pool.view.64MiB.p50", lambda _number: view(large)),
        ("pool.put.shm.4KiB.p50", put),
        ("pool.exists.single.p50", exists),
    ]

    def view(key: bytes) -> None:
        with pool.get([key]) as views:
            if views[0] is None:
                raise RuntimeError("a stored value is gone")

    for name, call in calls:
        times_us = call_times_us(call, call_count=bench.effort.call_count)
        yield row(name, percentile(times_us, 50), "us", limit=round_trip_us)


def exists_rows(bench: Bench, *, round_trip_us: float) -> Iterator[Row]:
    """Keys a second in batches of 128; the limit is one ping-pong a batch."""
    keys = list(itertools.islice(bench.names(), EXISTS_COUNT))
    require_all(bench.pool.put(keys, [b"x"] * EXISTS_COUNT, timeout_ms=TIMEOUT_MS))
    batch_count = bench.effort.call_count // 10

    def ask() -> None:
        for _ in range(batch_count):
            require_all(bench.pool.exists(keys))

    (seconds,) = in_turns([ask], pass_count=bench.effort.pass_count)
    limit = EXISTS_COUNT / round_trip_us * 1e6
    yield row("pool.exists.batch128", EXISTS_COUNT * batch_count / seconds, "keys/s", limit=limit)


def cpu_rows(bench: Bench, *, node_process_id: int) -> Iterator[Row]:
    """CPU microseconds of reading 1 MiB, client and node together, beside those of the copy."""
    batches = Batches(bench, value_bytes=MIB, batch_count=1)
    batches.put()
    pass_count = max(1, CPU_CALLS // batches.value_count)

    def spent_s(work: Callable[[], None]) -> float:
        work()
        before_s = cpu_s("self") + cpu_s(str(node_process_id))
        for _ in range(pass_count):
            work()
        return cpu_s("self") + cpu_s(str(node_process_id)) - before_s

    reading_s = spent_s(batches.get)
    copying_s = spent_s(lambda: bench.machine.copy_out(MIB))
    count = pass_count * batches.value_count
    yield row("pool.get_into.shm.1MiB.cpu", reading_s / count * 1e6, "us", limit=copying_s / count * 1e6)


def cpu_s(process: str) -> float:
    """CPU seconds that a process has used, to the nanosecond: /proc/PID/schedstat of its tasks."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def step_rows(step: SchedulerStep, *, call_count: int, round_trip_us: float) -> Iterator[Row]:
    """The connector's look-up of a prompt of 1,000 blocks, all stored."""
    times_us = call_times_us(step, call_count=call_count)
    for percent in (50, 99):
        name = "connector.schedule_step" + ("" if percent == 50 else f".p{percent}")
        yield row(name, percentile(times_us, percent), "us", limit=round_trip_us)
