"""`moonpool up` below a folder of its own, for demos and benchmarks: start, kill, stop, restart, ask."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from moonpool.errors import MoonpoolError
from moonpool.identity import EngineCounters, RequestOutcome
from moonpool.pool.evidence import described_engines
from moonpool.testing.processes import POLL_S, Child, Progress

READY_SECONDS_MAX = 90
OUTCOME_SECONDS_MAX = 5
COMMAND_SECONDS_MAX = 30
SEGMENT_DEFAULT = "2GiB"


class Stack:
    """A node and a directory. `async with Stack(folder, progress=…) as stack:` starts and stops them."""

    def __init__(self, folder: Path, *, progress: Progress, segment: str = SEGMENT_DEFAULT) -> None:
        self.folder = folder / "run"
        self._progress = progress
        self._logs = folder
        self._segment = segment
        self._up = self._child("up", "--segment", segment, "--no-restart",
                               "--node-http-port", "0", "--directory-http-port", "0")  # fmt: skip
        self._restarted: list[Child] = []

    def _child(self, command: str, *arguments: str) -> Child:
        line = [sys.executable, "-m", "moonpool", command, "--runtime-folder", str(self.folder), *arguments]
        return Child(f"moonpool {command}", line, log_path=self._logs / f"moonpool-{command}.log", environment={})

    async def __aenter__(self) -> Self:
        self._up.start()
        try:
            await self._wait_ready(self._up, "node")
            await self._wait_ready(self._up, "directory")
        except BaseException:
            await self._up.stop(grace_s=2)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for child in reversed(self._restarted):
            await child.stop()
        await self._up.stop()

    async def _wait_ready(self, child: Child, kind: str) -> None:
        async def ready() -> bool:
            return self.announcement(kind) is not None

        await child.wait_until(ready, what=f"ready ({kind})", seconds_max=READY_SECONDS_MAX, progress=self._progress)

    def announcement(self, kind: str) -> dict[str, Any] | None:
        """What the living node or directory wrote about itself, or None."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{kind}.json").read_text())
        except (OSError, ValueError):
            return None
        return found if _is_alive(int(found["process_id"])) else None

    def process_id(self, kind: str) -> int:
        """Of the node or the directory. MoonpoolError when it is not there."""
        found = self.announcement(kind)
        if found is None:
            raise MoonpoolError(f"no {kind} runs in {self.folder}", kind="unavailable")
        return int(found["process_id"])

    def signal(self, kind: str, number: signal.Signals) -> None:
        """Sends a signal to the node or the directory."""
        os.kill(self.process_id(kind), number)

    async def kill(self, kind: str) -> None:
        """SIGKILL; returns when the process is gone."""
        process_id = self.process_id(kind)
        os.kill(process_id, signal.SIGKILL)
        deadline_s = time.monotonic() + 10
        while _is_alive(process_id):
            if time.monotonic() > deadline_s:
                raise MoonpoolError(f"the {kind} {process_id} survives SIGKILL", kind="stop_failed")
            await asyncio.sleep(0.01)

    async def restart(self, kind: str) -> float:
        """Starts a killed node or directory again, alone. Seconds until it is ready."""
        started_s = time.monotonic()
        arguments = ["--set", f"{kind}.http_port=0"]
        if kind == "node":
            arguments += ["--set", f"node.segment_bytes={self._segment}"]
        child = self._child(kind, *arguments)
        self._restarted.append(child)
        child.start()
        await self._wait_ready(child, kind)
        return time.monotonic() - started_s

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of one `moonpool` command on this stack."""
        line = [sys.executable, "-m", "moonpool", *arguments]
        process = await asyncio.create_subprocess_exec(
            *line, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS_MAX)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise MoonpoolError(f"`{shlex.join(line)}` hangs", kind="timed_out") from error
        return int(process.returncode or 0), output.decode(errors="replace").strip()

    def report_path(self, engine_name: str) -> Path:
        """Where the engine's connector writes one JSON line a finished request."""
        return self._logs / f"report-{engine_name}.jsonl"

    async def connector_flags(self, engine_name: str) -> tuple[str, ...]:
        """The flags that `moonpool vllm-args` prints for this stack, with a report file added."""
        code, text = await self.command(
            "vllm-args", "--json", "--runtime-folder", str(self.folder), "--engine-id", engine_name
        )
        if code != 0:
            raise MoonpoolError(f"`moonpool vllm-args` failed: {text}", kind="start_failed")
        extra = {"moonpool.report_path": str(self.report_path(engine_name))}
        return with_extra_config(json.loads(text)["flags"], extra)

    async def why(self, request_id: str) -> str:
        """What `moonpool why` says about a request, as soon as it knows it; what it says at last within 5 s."""
        deadline_s = time.monotonic() + OUTCOME_SECONDS_MAX
        while True:
            code, text = await self.command("why", "--runtime-folder", str(self.folder), "--request", request_id)
            if code == 0 or time.monotonic() > deadline_s:
                return text if code == 0 else ""
            await asyncio.sleep(POLL_S)

    async def outcome(self, engine_name: str, request_id: str) -> RequestOutcome:
        """The connector's own report of a finished request. MoonpoolError when none comes within 5 s."""
        deadline_s = time.monotonic() + OUTCOME_SECONDS_MAX
        while True:
            for found in read_report(self.report_path(engine_name)):
                if _is_of(found, request_id):
                    return found
            if time.monotonic() > deadline_s:
                raise MoonpoolError(
                    f"engine {engine_name} did not report request {request_id} in {self.report_path(engine_name)}",
                    kind="timed_out",
                )
            await asyncio.sleep(POLL_S)

    async def counters(self, engine_name: str, *, request_id: str) -> EngineCounters:
        """What the engine's scheduler had counted when this request, one of its last, was finished, or a little later.

        MoonpoolError when it tells the node nothing of it within 5 s.
        """
        deadline_s = time.monotonic() + OUTCOME_SECONDS_MAX
        while True:
            code, text = await self.command("stat", "--json", "--runtime-folder", str(self.folder))
            for engine in described_engines([json.loads(text)]) if code == 0 else ():
                if engine.engine_id == engine_name and any(_is_of(outcome, request_id) for outcome in engine.outcomes):
                    return engine.counters
            if time.monotonic() > deadline_s:
                raise MoonpoolError(f"engine {engine_name} told the node nothing of {request_id}", kind="timed_out")
            await asyncio.sleep(POLL_S)


def _is_of(outcome: RequestOutcome, request_id: str) -> bool:
    # vLLM puts its kind before, and a random tail behind, the id that was sent.
    return f"-{request_id}-" in f"-{outcome.request_id}-"


def read_report(path: Path) -> list[RequestOutcome]:
    """Every whole line of a report file, oldest first; none when there is no file yet."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=RequestOutcome) for line in lines]


def with_extra_config(flags: list[str], extra: dict[str, str]) -> tuple[str, ...]:
    """The flags with `extra` merged into kv_connector_extra_config of their --kv-transfer-config."""
    try:
        place = flags.index("--kv-transfer-config") + 1
        config = json.loads(flags[place])
    except (ValueError, IndexError) as error:
        raise MoonpoolError(
            f"`moonpool vllm-args` printed no --kv-transfer-config: {flags}", kind="internal"
        ) from error
    config["kv_connector_extra_config"] = {**config.get("kv_connector_extra_config", {}), **extra}
    return (*flags[:place], json.dumps(config), *flags[place + 1 :])


def _is_alive(process_id: int) -> bool:
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"
