"""The shell of a server process: start, say when ready, serve until a signal, stop in order."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from moonpool.errors import MoonpoolError
from moonpool.telemetry.http import HttpFace
from moonpool.telemetry.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterator

_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class Server(Protocol):
    """The native server of the process."""

    def start(self) -> None:
        """Begin to serve; OSError when that is impossible."""

    def stop(self) -> None:
        """End, in order."""

    def status(self) -> str:
        """The JSON of /status, with `state`."""

    def counters(self) -> dict[str, int]:
        """Flat numbers for /metrics."""


class Announcement(msgspec.Struct, frozen=True):
    """`<runtime folder>/<kind>.json`: there while the process is ready, so that others find it."""

    kind: str  # "node", "directory" or "conductor"
    name: str
    process_id: int
    incarnation: int
    socket: str
    http: str
    started_ticks: int  # of the process, since boot: another process that got its number later began later


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Keep the stop signals pending for `serve`. Enter before any thread starts: threads inherit it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        while signal.sigtimedwait(_STOP_SIGNALS, 0) is not None:  # a second Ctrl-C must not cut the end short
            continue
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent ends, however it ends."""
    parent = os.getppid()
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise MoonpoolError(f"prctl failed: {os.strerror(ctypes.get_errno())}", kind="start_failed")
    if os.getppid() != parent:  # it ended before the kernel was told
        signal.raise_signal(signal.SIGTERM)


def serve(server: Server, face: HttpFace, *, kind: str, runtime_folder: str, socket_path: str) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP; call inside `blocked_signals`.

    Says `ready` in the log and in `<runtime_folder>/<kind>.json` when the server is ready, and nothing earlier.
    MoonpoolError(start_failed) when it cannot start.
    """
    announcement = Path(runtime_folder) / f"{kind}.json"
    _allow_many_files()
    try:
        server.start()
    except OSError as error:
        raise MoonpoolError(
            f"the {kind} cannot start on {socket_path}: {error}; if another {kind} runs there, stop it first, "
            "or choose another runtime_folder",
            kind="start_failed",
        ) from error
    try:
        face.start()
        if _wait_until_ready(server, kind):
            _announce(announcement, server, face, kind=kind, socket_path=socket_path)
            arrived = signal.sigwait(_STOP_SIGNALS)
            logger(kind).info("stopping", signal=signal.Signals(arrived).name)
            announcement.unlink(missing_ok=True)
    finally:
        face.stop()
        server.stop()


def _allow_many_files() -> None:
    """Raise the soft limit of open files, often 1,024, to the hard one: each client costs a server two of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _wait_until_ready(server: Server, kind: str) -> bool:
    """False when a stop signal came first."""
    if kind != "node":  # serves as soon as it listens; `warming` means that no owner has told it everything yet
        return True
    while (state := json.loads(server.status())["state"]) == "warming":
        if signal.sigtimedwait(_STOP_SIGNALS, _POLL_S) is not None:
            return False
    if state != "ready":
        raise MoonpoolError(
            f"the {kind} cannot start: its state is {state}; lower {kind}.segment_bytes, or free memory",
            kind="start_failed",
        )
    return True


def _announce(path: Path, server: Server, face: HttpFace, *, kind: str, socket_path: str) -> None:
    status: dict[str, Any] = json.loads(server.status())
    announcement = Announcement(
        kind=kind,
        name=status["name"],
        process_id=os.getpid(),
        incarnation=status["incarnation"],
        socket=socket_path,
        http=face.url,
        started_ticks=_started_ticks(os.getpid()),
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(announcement))
    temporary.replace(path)  # readers see the whole file or none
    said = msgspec.structs.asdict(announcement)
    del said["kind"], said["started_ticks"]
    logger(kind).info("ready", **said)


def read_announcement(runtime_folder: str | Path, kind: str) -> Announcement | None:
    """What the process of that kind announced; None when none is ready, or the one that did is gone."""
    try:
        content = (Path(runtime_folder) / f"{kind}.json").read_bytes()
    except OSError:
        return None
    try:
        announcement = msgspec.json.decode(content, type=Announcement)
    except msgspec.DecodeError:
        return None
    alive = _started_ticks(announcement.process_id) == announcement.started_ticks
    return announcement if alive else None


def _started_ticks(process_id: int) -> int:
    """When a process began, in clock ticks since boot (proc(5), field 22 of stat); -1 when there is none."""
    try:
        return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return -1
