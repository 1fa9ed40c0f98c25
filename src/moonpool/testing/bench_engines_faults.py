"""What a dead or silent node or directory costs the engines.

One asker sends one request at a time, to the engines in turn, so that they do not take the processors from each other
and what is left is what the fault adds. Of each kind in turn:

- `short`: fewer tokens than a block, so the pool has nothing to do with it;
- `again`: a prefix that the engine has in its own cache;
- `fresh`: a prompt nobody has seen, so the connector looks it up in vain and saves it.

A quiet time of the same length lies before and after each fault; what a fault adds is the difference to both.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
import signal
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import msgspec

from moonpool.errors import MoonpoolError
from moonpool.testing.bench_engines_rows import Row
from moonpool.testing.bench_engines_sharing import Asker
from moonpool.testing.demo_stack import Stack
from moonpool.testing.engines import Engine
from moonpool.testing.workload import QUESTIONS, system_prompt

KINDS = ("short", "again", "fresh")
ADDED_P50_LIMIT_MS = 10.0
ADDED_MAX_LIMIT_MS = 1000.0
BACK_LIMIT_S = 2.0
BACK_SECONDS_MAX = 30
LOAD_ROOM_COUNT = 1
BACK_TEXT = "Guest {0}. " + "Please read the rules of the house and tell me which of them you like best. " * 4


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One request under load."""

    kind: str
    engine: str
    sent_s: float
    ttft_ms: float
    error: str = ""


class Load:
    """Requests without a pause, one at a time, until it is told to end. `async with Load(…) as load:`."""

    def __init__(self, asker: Asker, engines: Sequence[Engine]) -> None:
        self.samples: list[Sample] = []
        self._asker = asker
        self._engines = engines
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ending.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        for kind, engine in itertools.cycle(itertools.product(KINDS, self._engines)):
            if self._ending.is_set():
                return
            sent_s = time.monotonic()
            try:
                ttft_ms = await self._send(engine, kind)
                sample = Sample(kind=kind, engine=engine.spec.name, sent_s=sent_s, ttft_ms=ttft_ms)
            except MoonpoolError as error:
                ttft_ms = (time.monotonic() - sent_s) * 1000
                sample = Sample(kind=kind, engine=engine.spec.name, sent_s=sent_s, ttft_ms=ttft_ms, error=str(error))
                await asyncio.sleep(0.1)  # an engine that refuses at once must not make this loop spin
            self.samples.append(sample)

    async def _send(self, engine: Engine, kind: str) -> float:
        if kind == "short":
            answer, _ = await self._asker.ask_text(engine, "Hello", token_count_max=1)
            return answer.ttft_ms
        label = "always" if kind == "again" else secrets.token_hex(5)
        system = system_prompt(label, room_count=LOAD_ROOM_COUNT)
        answer, _ = await self._asker.ask_text(engine, QUESTIONS[0], system=system, token_count_max=1)
        return answer.ttft_ms


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong."""

    name: str
    kind: str  # node or directory
    killed: bool  # else stopped


FAULTS = (
    Fault("node_killed", "node", True),
    Fault("node_stopped", "node", False),
    Fault("directory_killed", "directory", True),
    Fault("directory_stopped", "directory", False),
)


async def measure_faults(asker: Asker, engines: Sequence[Engine], *, stack: Stack, seconds: float) -> list[Row]:
    """All faults in turn, `seconds` each, with a quiet time of the same length around each."""
    before = await _measure_quiet(asker, engines, seconds=seconds)
    rows: list[Row] = []
    quiet = list(before)
    for fault in FAULTS:
        asker.progress(f"{fault.name} for {seconds:.0f} s under load")
        try:
            samples, back_s = await _measure_fault(asker, engines, fault, stack=stack, seconds=seconds)
        except MoonpoolError as error:
            asker.progress(f"{fault.name}: {error}")
            samples, back_s, remark = [], math.nan, str(error).splitlines()[0][:90]
        else:
            remark = "from the restart to the first answer across"
        after = await _measure_quiet(asker, engines, seconds=seconds)
        rows += fault_rows(fault.name, before + after, samples)
        rows.append(Row(name=f"fault.{fault.name}.hits_back", value=back_s, unit="s", target=BACK_LIMIT_S,
                        remark=remark))  # fmt: skip
        quiet += after
        before = after
    return quiet_rows(quiet) + rows


async def _measure_quiet(asker: Asker, engines: Sequence[Engine], *, seconds: float) -> list[Sample]:
    asker.progress(f"quiet time under load, {seconds:.0f} s")
    async with Load(asker, engines) as load:
        await asyncio.sleep(seconds)
    return load.samples


async def _measure_fault(
    asker: Asker, engines: Sequence[Engine], fault: Fault, *, stack: Stack, seconds: float
) -> tuple[list[Sample], float]:
    """The requests under the fault, and the seconds until a hit afterwards."""
    begin, end = _actions(stack, fault)
    async with Load(asker, engines) as load:
        await begin()
        await asyncio.sleep(seconds)
    await end()
    return load.samples, await _seconds_until_hit(asker, engines)


def _actions(stack: Stack, fault: Fault) -> tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]:
    async def send(number: signal.Signals) -> None:
        stack.signal(fault.kind, number)

    if fault.killed:
        return lambda: stack.kill(fault.kind), lambda: stack.restart(fault.kind)
    return lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)


async def _seconds_until_hit(asker: Asker, engines: Sequence[Engine]) -> float:
    """From now until the second engine has answered a request out of what the first stored since; nan: not in 30 s.

    The prompts are of a few blocks, so that little of the time is the first engine's own prefill.
    """
    started_s = time.monotonic()
    first, second = engines[0], engines[1]
    while time.monotonic() - started_s < BACK_SECONDS_MAX:
        question = BACK_TEXT.format(secrets.token_hex(4))
        await asker.ask_text(first, question, token_count_max=1)
        answer, request_id = await asker.ask_text(second, question, token_count_max=1)
        answered_s = time.monotonic()
        outcome = await asker.outcome(second, request_id)
        if outcome and outcome.applied_tokens:
            return answered_s - started_s - (answer.total_ms - answer.ttft_ms) / 1000
    return math.nan


def quiet_rows(samples: Sequence[Sample]) -> list[Row]:
    """What the faults are measured against."""
    rows = []
    for kind in KINDS:
        values = [sample.ttft_ms for sample in samples if sample.kind == kind and not sample.error]
        if values:
            rows.append(Row(name=f"quiet.ttft.{kind}", value=statistics.median(values), unit="ms", count=len(values),
                            remark=f"max {max(values):.0f} ms"))  # fmt: skip
    return rows


def fault_rows(name: str, quiet: Sequence[Sample], samples: Sequence[Sample]) -> list[Row]:
    """Failed requests, and by kind what the fault added to the median and to the slowest."""
    failed = [sample for sample in samples if sample.error]
    rows = [Row(name=f"fault.{name}.failed", value=len(failed), unit="requests", target=0, count=len(samples),
                remark=failed[0].error[:80] if failed else "")]  # fmt: skip
    for kind in KINDS:
        before = [sample.ttft_ms for sample in quiet if sample.kind == kind and not sample.error]
        during = [sample.ttft_ms for sample in samples if sample.kind == kind and not sample.error]
        if not before or not during:
            rows.append(Row(name=f"fault.{name}.{kind}.added_p50", value=math.nan, unit="ms",
                            target=ADDED_P50_LIMIT_MS, remark="no request ended"))  # fmt: skip
            continue
        added = statistics.median(during) - statistics.median(before)
        rows.append(Row(name=f"fault.{name}.{kind}.added_p50", value=added, unit="ms", target=ADDED_P50_LIMIT_MS,
                        noise=_median_noise_ms(before, during), count=len(during)))  # fmt: skip
        rows.append(Row(name=f"fault.{name}.{kind}.added_max", value=max(during) - statistics.median(before),
                        unit="ms", target=ADDED_MAX_LIMIT_MS, count=len(during),
                        remark=f"quiet max {max(before) - statistics.median(before):+.0f} ms"))  # fmt: skip
    return rows


def _median_noise_ms(*groups: Sequence[float]) -> float | None:
    """Two standard errors of a difference of medians: 1.253 times those of means, for values spread normally."""
    if any(len(group) < 2 for group in groups):
        return None
    return 2 * 1.253 * math.sqrt(sum(statistics.variance(group) / len(group) for group in groups))


async def measure_engine_killed(asker: Asker, engines: Sequence[Engine], *, count: int = 3) -> list[Row]:
    """Engine A is killed for good while B reads what A stored. B must not notice."""
    first, second = engines[0], engines[1]
    labels = [f"orphan {secrets.token_hex(4)}" for _ in range(count)]
    for label in labels:
        await asker.ask(first, label, 0)
    tasks = [asyncio.create_task(asker.ask(second, label, 1)) for label in labels]
    await asyncio.sleep(0.02)
    first.child.kill_now()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    applied = 0
    for result in results:
        if not isinstance(result, BaseException):
            outcome = await asker.outcome(second, result[1])
            applied += bool(outcome and outcome.applied_tokens)
    return [
        Row(name="fault.engine_killed.failed", value=len(failed), unit="requests", target=0, count=count,
            remark=str(failed[0])[:80] if failed else ""),
        Row(name="fault.engine_killed.hits", value=applied, unit="requests", target=count, at_least=True, count=count),
    ]  # fmt: skip
