"""Rows of small calls: how long one takes, how many keys a second, and how much CPU time a read costs."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from moonpool import _native
from moonpool.testing.bench.measure import Row, call_times_us, in_turns, percentile, row
from moonpool.testing.bench.moving import KIB, MIB, TIMEOUT_MS, Batches
from moonpool.testing.bench.spinner import awake
from moonpool.testing.bench.stage import Prompt, Stage, require_all
from moonpool.testing.bench.topics import Topic, ratio_at_most, value_at_least, value_at_most

KEY_COUNT = 1_024
EXISTS_COUNT = 128
LARGE_BYTES = 64 * MIB
CPU_CALLS = 2_000
STEP_BLOCK_COUNT = 1_000
STEP_NAMESPACE_ID = 1


def latency_rows(stage: Stage) -> Iterator[Row]:
    """p50 microseconds of single calls, beside a ping-pong of 64 bytes."""
    yield row("machine.ping_pong.64B.p50", stage.round_trip_us, "us")
    pool, value, target = stage.pool, bytes(4 * KIB), bytearray(4 * KIB)
    names = stage.names()
    keys = list(itertools.islice(names, KEY_COUNT))
    require_all(pool.put(keys, [value] * KEY_COUNT, timeout_ms=TIMEOUT_MS))

    def get_into(number: int) -> None:
        require_all(pool.get_into([keys[number % KEY_COUNT]], [target]))

    def put(_number: int) -> None:
        require_all(pool.put([next(names)], [value]))

    def exists(number: int) -> None:
        require_all(pool.exists([keys[number % KEY_COUNT]]))

    calls: list[tuple[str, Callable[[int], None]]] = [
        ("pool.get_into.shm.4KiB.p50", get_into),
        ("pool.put.shm.4KiB.p50", put),
        ("pool.exists.single.p50", exists),
    ]
    for name, call in calls:
        yield row(name, _p50_us(stage, call), "us", limit=stage.round_trip_us)


def view_rows(stage: Stage) -> Iterator[Row]:
    """p50 microseconds of borrowing a value that was verified before; the limit of the large one is the small one."""
    pool, names = stage.pool, stage.names()
    small, large = next(names), next(names)
    memory = memoryview(stage.machine.memory)
    require_all(pool.put([small, large], [memory[: 4 * KIB], memory[:LARGE_BYTES]], timeout_ms=TIMEOUT_MS))

    def view(key: bytes) -> None:
        with pool.get([key]) as views:
            if views[0] is None:
                raise RuntimeError("a stored value is gone")

    small_us = _p50_us(stage, lambda _number: view(small))
    yield row("pool.view.4KiB.p50", small_us, "us", limit=stage.round_trip_us)
    yield row("pool.view.64MiB.p50", _p50_us(stage, lambda _number: view(large)), "us", limit=small_us)


def exists_rows(stage: Stage) -> Iterator[Row]:
    """Keys a second in batches of 128; the limit is one ping-pong a batch."""
    keys = list(itertools.islice(stage.names(), EXISTS_COUNT))
    require_all(stage.pool.put(keys, [b"x"] * EXISTS_COUNT, timeout_ms=TIMEOUT_MS))
    batch_count = stage.effort.call_count // 10

    def ask() -> None:
        for _ in range(batch_count):
            require_all(stage.pool.exists(keys))

    with awake():
        (seconds,) = in_turns([ask], pass_count=stage.effort.pass_count)
    limit = EXISTS_COUNT / stage.round_trip_us * 1e6
    yield row("pool.exists.batch128", EXISTS_COUNT * batch_count / seconds, "keys/s", limit=limit)


def cpu_rows(stage: Stage) -> Iterator[Row]:
    """CPU microseconds of reading 1 MiB, client and node together, beside those of the copy."""
    node = str(stage.cluster.node.process_id)
    batches = Batches(stage, value_bytes=MIB, batch_count=1)
    batches.put()
    pass_count = max(1, CPU_CALLS // batches.value_count)

    def spent_s(work: Callable[[], None]) -> float:
        work()
        before_s = cpu_s("self") + cpu_s(node)
        for _ in range(pass_count):
            work()
        return cpu_s("self") + cpu_s(node) - before_s

    reading_s = spent_s(batches.get)
    copying_s = spent_s(lambda: stage.machine.copy_out(MIB))
    count = pass_count * batches.value_count
    yield row("pool.get_into.shm.1MiB.cpu", reading_s / count * 1e6, "us", limit=copying_s / count * 1e6)


def step_rows(stage: Stage) -> Iterator[Row]:
    """The connector's look-up of a prompt of 1,000 blocks, all stored."""
    step = stage.make_step(stage.cluster.config, _store_prompt(stage))
    with awake():
        times_us = call_times_us(step, call_count=stage.effort.call_count)
    yield row("connector.schedule_step", percentile(times_us, 50), "us", limit=stage.round_trip_us)
    yield row("connector.schedule_step.p99", percentile(times_us, 99), "us", limit=stage.round_trip_us)


def _store_prompt(stage: Stage) -> Prompt:
    hashes = [number.to_bytes(32, "big") for number in range(1, STEP_BLOCK_COUNT + 1)]
    hints = array("Q", range(1, STEP_BLOCK_COUNT + 1))
    tags = _native.Tags(STEP_NAMESPACE_ID, hints, array("Q", [0, *hints[:-1]]))
    keys = [b"bench/prompt/" + block_hash for block_hash in hashes]
    require_all(stage.pool.put(keys, [b"block"] * STEP_BLOCK_COUNT, tags=tags, timeout_ms=TIMEOUT_MS))
    return Prompt(STEP_NAMESPACE_ID, tuple(hashes))


def _p50_us(stage: Stage, call: Callable[[int], None]) -> float:
    with awake():
        return percentile(call_times_us(call, call_count=stage.effort.call_count), 50)


def cpu_s(process: str) -> float:
    """CPU seconds that a process has used, to the nanosecond: /proc/PID/schedstat of its tasks."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


TOPICS = (
    Topic(
        "single small calls",
        {
            "machine.ping_pong.64B.p50": None,
            "pool.get_into.shm.4KiB.p50": ratio_at_most(1.5),
            "pool.put.shm.4KiB.p50": ratio_at_most(2.5),
            "pool.exists.single.p50": ratio_at_most(1.5),
        },
        latency_rows,
    ),
    Topic("views", {"pool.view.4KiB.p50": None, "pool.view.64MiB.p50": ratio_at_most(1.1)}, view_rows),
    Topic("existence", {"pool.exists.batch128": value_at_least(4_000_000)}, exists_rows),
    Topic("CPU time of a read", {"pool.get_into.shm.1MiB.cpu": ratio_at_most(1.4)}, cpu_rows),
    Topic(
        "the scheduler's look-up",
        {"connector.schedule_step": None, "connector.schedule_step.p99": value_at_most(300)},
        step_rows,
    ),
)
