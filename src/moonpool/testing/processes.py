"""Child processes with a log file, watched and stopped as a whole group.

A child leads a process group of its own, so that its workers end with it, also when the child itself was killed.
Where the machine has ``setpriv``, the kernel ends the child when this process dies without having stopped it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from moonpool.errors import MoonpoolError
from moonpool.testing.models import last_line

LOG_TAIL_LINES = 25
POLL_S = 0.1
TELL_EVERY_S = 15

Progress = Callable[[str], None]


_STARTED: weakref.WeakSet[Child] = weakref.WeakSet()


@atexit.register
def _kill_what_is_left() -> None:
    """The last resort when an interrupt cut the orderly end short."""
    for child in list(_STARTED):
        child.kill_now()


class Child:
    """One started command. `stop` is safe to call at any time and more than once."""

    def __init__(self, name: str, command: Sequence[str], *, log_path: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log_path = log_path
        self.command = _with_environment(command, environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        """Of the command itself, which leads the group. Raises MoonpoolError before start."""
        if self._process is None:
            raise MoonpoolError(f"{self.name} was not started", kind="start_failed")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command itself has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the command; its output is appended to the log file."""
        if self.running:
            raise MoonpoolError(f"{self.name} is running already", kind="start_failed")
        _STARTED.add(self)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log_tail(self) -> str:
        """The end of the log, for an error message."""
        with contextlib.suppress(OSError):
            lines = self.log_path.read_text(errors="replace").splitlines()
            return "\n".join(lines[-LOG_TAIL_LINES:])
        return ""

    async def wait_until(
        self, ready: Callable[[], Awaitable[bool]], *, what: str, seconds_max: float, progress: Progress
    ) -> None:
        """Waits until `ready` says so. Raises MoonpoolError with the log's tail when the child ends or time is up."""
        started_s = told_s = time.monotonic()
        while not await ready():
            now_s = time.monotonic()
            if not self.running:
                raise self._failure(f"ended before it was {what}")
            if now_s - started_s > seconds_max:
                raise self._failure(f"was not {what} within {seconds_max:.0f} s")
            if now_s - told_s > TELL_EVERY_S:
                told_s = now_s
                progress(f"{self.name}: {now_s - started_s:.0f} s, {last_line(self.log_path)}")
            await asyncio.sleep(POLL_S)

    def _failure(self, text: str) -> MoonpoolError:
        return MoonpoolError(f"{self.name} {text}; the end of {self.log_path}:\n{self.log_tail()}", kind="start_failed")

    def signal(self, number: signal.Signals, *, whole_group: bool = False) -> None:
        """Sends a signal to the command, or to all of its group; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if whole_group:
                os.killpg(self.process_id, number)
            elif self.running:
                os.kill(self.process_id, number)

    async def stop(self, *, grace_s: float = 15) -> None:
        """SIGTERM to the command, SIGKILL to what is left of its group after `grace_s`; returns when all are gone."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT, whole_group=True)  # a stopped process would not hear SIGTERM
        self.signal(signal.SIGTERM)
        if not await self._gone(grace_s):
            self.signal(signal.SIGKILL, whole_group=True)
            if not await self._gone(10):
                left = group_members(self.process_id)
                raise MoonpoolError(f"{self.name}: processes {left} survive SIGKILL", kind="stop_failed")
        self._process.wait()

    async def _gone(self, seconds_max: float) -> bool:
        deadline_s = time.monotonic() + seconds_max
        while self.running or group_members(self.process_id):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def kill_now(self) -> None:
        """SIGKILL to what is left of the group, without waiting."""
        if self._process is not None and group_members(self.process_id):
            self.signal(signal.SIGKILL, whole_group=True)


def _with_environment(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    # `env` adds to what this process inherited, so that only `config` reads the environment.
    tied = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    return [*tied, "env", *(f"{name}={value}" for name, value in environment.items()), *command]


def group_members(group_id: int) -> list[int]:
    """Processes of a group that are not zombies (nobody may be there to reap an orphan in a container)."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            if int(group) == group_id and state not in "ZX":
                members.append(int(path.parent.name))
    return members


def processes_naming(text: str) -> list[str]:
    """'pid command' of every other living process whose command line holds `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if text in command and int(path.parent.name) != os.getpid():
                found.append(f"{path.parent.name} {command}")
    return found


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
