"""The demo: two real vLLM engines, one pool, a chat that moves between them, a killed node, and the proof.

``python -m moonpool.testing.demo`` (or ``make demo``) starts `moonpool up` and two engines with the connector, sends
the workload, kills the node while the second engine loads, starts it again, then sends the same requests to engines
without the pool, and compares. CPU only. It ends with exit code 0 only when every answer is equal, the second
engine used what the first had computed, and no request failed. Nothing is left running, whatever happens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from rich.console import Console

from moonpool.errors import MoonpoolError
from moonpool.testing.bench_engines_rows import screen
from moonpool.testing.chat import Message, Question, ask
from moonpool.testing.demo_fault import kill_while_loading
from moonpool.testing.demo_report import Row, compare_rows, promises, summarize
from moonpool.testing.demo_stack import Stack
from moonpool.testing.demo_view import print_result, result_document
from moonpool.testing.engines import Engine, EngineSpec, start_all, stop_all
from moonpool.testing.models import MODEL_FOLDER_DEFAULT, model_folder
from moonpool.testing.processes import Progress, processes_naming
from moonpool.testing.workload import Part, Step, Transcript, demo_steps, fault_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL_NAME = "smollm2"
SECONDS_MAX = 600
FAULT_COUNT = 3
# A machine that is busy with other things can miss the moment, or a look-up its budget of some milliseconds.
ATTEMPT_COUNT_MAX = 3
EXIT_BROKEN_PROMISE = 1
EXIT_ERROR = 2


class Runner:
    """Sends steps to engines by name and keeps what came back."""

    def __init__(self, engines: Sequence[Engine], *, stack: Stack | None, progress: Progress) -> None:
        self.engines = {engine.spec.name: engine for engine in engines}
        self.rows: list[Row] = []
        self._stack = stack
        self._progress = progress

    async def send(self, session: aiohttp.ClientSession, step: Step, messages: tuple[Message, ...]) -> Row:
        """One request and the connector's report of it. A failure is told in the row, never raised."""
        row = await self._send(session, step, messages)
        self.rows.append(row)
        what = f"{row.answer.ttft_ms:.0f} ms to the first token" if row.answer else f"FAILED: {row.error}"
        from_pool = f", {row.pool_tokens} from the pool" if self._stack else ""
        counts = f"{row.prompt_tokens} prompt tokens, {row.computed_tokens} computed{from_pool}"
        self._progress(f"  {step.number:>2} {step.engine} {step.part}: {counts}, {what}")
        return row

    async def _send(self, session: aiohttp.ClientSession, step: Step, messages: tuple[Message, ...]) -> Row:
        question = Question(model=MODEL_NAME, messages=messages, token_count_max=step.token_count_max,
                            request_id=step.request_id)  # fmt: skip
        try:
            answer = await ask(session, self.engines[step.engine].url, question)
            outcome = await self._stack.outcome(step.engine, step.request_id) if self._stack else None
        except MoonpoolError as error:
            return Row(step=step, messages=messages, error=str(error))
        return Row(step=step, messages=messages, answer=answer, outcome=outcome)


class Demo:
    """The parts of the demo, in order."""

    def __init__(self, folder: Path, model: Path, *, unique_count: int, progress: Progress) -> None:
        self.folder = folder
        self.why_text = ""
        self.restart_seconds = 0.0
        self._model = model
        self._unique_count = unique_count
        self._progress = progress

    async def with_pool(self) -> list[Row]:
        """The workload on two engines that share the pool, then the kill and the restart of the node."""
        self._progress("starting `moonpool up` and two engines with the connector (about a minute)")
        async with Stack(self.folder, progress=self._progress) as stack:
            flags = {name: await stack.connector_flags(name) for name in "AB"}
            engines = [self._engine(name, connector_flags=flags[name]) for name in "AB"]
            await start_all(engines)
            try:
                runner = Runner(engines, stack=stack, progress=self._progress)
                async with aiohttp.ClientSession() as session:
                    await self._workload(runner, session)
                    await self._node_fault(runner, session, stack)
            finally:
                await stop_all(engines)
        return runner.rows

    async def without_pool(self, asked: Sequence[Row]) -> list[Row]:
        """The same requests, word by word, on two engines without a connector."""
        self._progress("starting two engines without the pool, for comparison")
        engines = [self._engine(name, suffix="-alone") for name in "AB"]
        await start_all(engines)
        try:
            runner = Runner(engines, stack=None, progress=self._progress)
            async with aiohttp.ClientSession() as session:
                for row in sorted(asked, key=lambda row: row.step.number):
                    await runner.send(session, _for_comparison(row.step), row.messages)
        finally:
            await stop_all(engines)
        return runner.rows

    def _engine(self, name: str, *, connector_flags: tuple[str, ...] = (), suffix: str = "") -> Engine:
        spec = EngineSpec(name=name, model_folder=self._model, model_name=MODEL_NAME,
                          log_folder=self.folder / f"logs{suffix}", connector_flags=connector_flags)  # fmt: skip
        return Engine(spec, progress=self._progress)

    async def _workload(self, runner: Runner, session: aiohttp.ClientSession) -> None:
        self._progress("the workload, with the pool:")
        transcript = Transcript()
        for step in demo_steps(unique_count=self._unique_count):
            row = await runner.send(session, step, transcript.messages(step))
            transcript.add(step, row.answer.text if row.answer else "")

    async def _node_fault(self, runner: Runner, session: aiohttp.ClientSession, stack: Stack) -> None:
        self._progress("A stores new prefixes; B asks for them, and the node is killed while B loads:")
        for attempt in range(ATTEMPT_COUNT_MAX):
            force = attempt + 1 == ATTEMPT_COUNT_MAX
            if await self._kill_under_requests(runner, session, stack, label=f"storm {attempt}", force=force):
                break
        killed = [row for row in runner.rows if row.step.part is Part.NODE_KILLED]
        self.why_text = await self._why(stack, killed[-1].step.request_id)
        self.restart_seconds = await stack.restart("node")
        self._progress(f"the node is back after {self.restart_seconds:.1f} s; no engine was restarted")
        for attempt in range(ATTEMPT_COUNT_MAX):
            for part, engine in ((Part.AFTER_BACK, "A"), (Part.NODE_BACK, "B")):
                [step] = self._fault_steps(runner, part, engine=engine, label=f"calm {attempt}", count=1)
                await self._send_alone(runner, session, step)
            if runner.rows[-1].pool_tokens:
                break

    async def _kill_under_requests(
        self, runner: Runner, session: aiohttp.ClientSession, stack: Stack, *, label: str, force: bool
    ) -> bool:
        for step in self._fault_steps(runner, Part.BEFORE_KILL, engine="A", label=label, count=FAULT_COUNT + 1):
            await self._send_alone(runner, session, step)
        *steps, late = self._fault_steps(runner, Part.NODE_KILLED, engine="B", label=label, count=FAULT_COUNT + 1)
        requests = asyncio.gather(*(self._send_alone(runner, session, step) for step in steps))
        killed = await kill_while_loading(stack, until=requests, force=force, progress=self._progress)
        await requests
        if killed:  # a load that has begun may end well, out of memory that is mapped; this one finds nobody
            await self._send_alone(runner, session, late)
        return killed

    def _fault_steps(
        self, runner: Runner, part: Part, *, engine: str, label: str, count: int = FAULT_COUNT
    ) -> list[Step]:
        number = max(row.step.number for row in runner.rows) + 1
        return fault_steps(part, engine=engine, first_number=number, count=count, label=label)

    async def _send_alone(self, runner: Runner, session: aiohttp.ClientSession, step: Step) -> Row:
        return await runner.send(session, step, Transcript().messages(step))

    async def _why(self, stack: Stack, request_id: str) -> str:
        text = await stack.why(request_id)
        self._progress(f"`moonpool why --request {request_id}`, while the node is dead:")
        for line in text.splitlines():
            self._progress(f"    {line}")
        return text


def _for_comparison(step: Step) -> Step:
    # Steps about faults are compared by their answers only: one engine answers them all, out of its own cache.
    faults = (Part.BEFORE_KILL, Part.NODE_KILLED, Part.AFTER_BACK, Part.NODE_BACK)
    if step.part not in faults:
        return step
    return Step(number=step.number, engine="A", part=step.part, conversation=step.conversation, system=step.system,
                user=step.user, token_count_max=step.token_count_max)  # fmt: skip


async def run(arguments: argparse.Namespace, folder: Path, console: Console) -> int:
    """The whole demo below `folder`. The exit code."""
    started_s = time.monotonic()

    def progress(text: str) -> None:
        console.print(f"[{time.monotonic() - started_s:5.0f} s] {text}", markup=False, highlight=False)

    model = await asyncio.to_thread(model_folder, arguments.model_folder, progress=progress)
    async with asyncio.timeout(arguments.seconds_max):
        demo = Demo(folder, model, unique_count=arguments.unique, progress=progress)
        with_pool = await demo.with_pool()
        without = await demo.without_pool(with_pool)
    comparisons = compare_rows(with_pool, without)
    summary = summarize(with_pool, without)
    kept = promises([*with_pool, *without], comparisons, why_text=demo.why_text)
    print_result(screen(), (with_pool, without, comparisons), summary=summary, promises=kept)
    if arguments.json:
        document = result_document(
            (with_pool, without, comparisons), summary=summary, promises=kept, seconds=time.monotonic() - started_s
        )
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(promise.kept for promise in kept) else EXIT_BROKEN_PROMISE


def main() -> int:
    """Parses the command line, runs the demo, cleans up. Ctrl-C and SIGTERM end it in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-folder", type=Path, default=MODEL_FOLDER_DEFAULT)
    parser.add_argument("--json", type=Path, help="write the whole result to this file")
    parser.add_argument("--unique", type=int, default=8, help="how many unique prompts (default %(default)s)")
    parser.add_argument("--seconds-max", type=float, default=SECONDS_MAX, help="give up after (default %(default)s)")
    parser.add_argument("--keep-logs", type=Path, help="copy the logs of all processes into this folder at the end")
    arguments = parser.parse_args()
    console = Console(stderr=True, soft_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="moonpool-demo-"))
    code = EXIT_ERROR
    try:
        code = asyncio.run(_interruptible(run(arguments, folder, console)))
    except MoonpoolError as error:
        console.print(f"error: {error}", style="red", markup=False)
    except TimeoutError:
        console.print(f"error: the demo did not end within {arguments.seconds_max:.0f} s", style="red")
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; everything was stopped", style="yellow")
        code = 130
    left = processes_naming(str(folder))
    if left:
        console.print("left running: " + "; ".join(left), style="red", markup=False)
        code = code or EXIT_ERROR
    if arguments.keep_logs or code not in (0, 130):
        kept = shutil.copytree(folder, arguments.keep_logs or Path(".cache/demo-logs"), dirs_exist_ok=True,
                               ignore=shutil.ignore_patterns("run"))  # fmt: skip
        console.print(f"logs: {kept}", markup=False)
    shutil.rmtree(folder, ignore_errors=True)
    return code


async def _interruptible(work: object) -> int:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, task.cancel)
    return int(await task)


if __name__ == "__main__":
    sys.exit(main())
