"""up: everything that one host needs, in the foreground."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moonpool.cli.settings import Settings, bytes_text, settings_options
from moonpool.cli.supervision import WATCHED_SIGNALS, Child, exit_text, unblock_signals
from moonpool.config import prepare_runtime_folder
from moonpool.errors import MoonpoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_S = 0.05
# Populating memory takes about a second per 2 GiB; a machine under pressure may need ten times that.
_READY_S_MIN = 30.0
_READY_S_PER_GIB = 5.0


@click.command(short_help="Start everything on this host: a directory and a node.")
@click.option("--segment", "segment_bytes", metavar="SIZE", help="Memory to share, such as 4GiB.")
@click.option("--node-http-port", type=int, help="0: any free one.")
@click.option("--directory-http-port", type=int, help="0: any free one.")
@click.option("--no-restart", is_flag=True, help="Leave a process that died dead.")
@click.option("--hold", is_flag=True, help="With COMMAND: keep everything running after it, until Ctrl-C.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@settings_options
def up(*, settings: Settings, no_restart: bool, hold: bool, command: Sequence[str], **options: str | int | None) -> int:
    """Start a directory and a node on this host, in the foreground until Ctrl-C.

    A process that dies is started again. With COMMAND (after --), run it once all is ready, stop everything when
    it ends, and exit with its exit code.
    """
    for option, name in (
        ("segment_bytes", "node.segment_bytes"),
        ("node_http_port", "node.http_port"),
        ("directory_http_port", "directory.http_port"),
    ):
        settings.with_flag(name, options[option])
    stack = Stack(settings, restart=not no_restart)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    try:
        if not stack.start():
            return 0
        stack.show()
        return stack.watch(command, hold=hold)
    finally:
        stack.stop()
        while (pending := signal.sigtimedwait(WATCHED_SIGNALS, 0)) is not None:
            del pending  # a second Ctrl-C must not cut the end short
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Stack:
    """The processes of one host and the loop that watches them."""

    def __init__(self, settings: Settings, *, restart: bool) -> None:
        self._settings = settings
        self._config = settings.config
        self._restart = restart
        # The size is chosen once: after a restart less may look free, for clients still map the old memory.
        sizes = (f"node.{name}={getattr(self._config.node, name)}" for name in ("segment_bytes", "arena_bytes"))
        arguments = [*settings.arguments(), *(part for size in sizes for part in ("--set", size))]
        folder = self._config.runtime_folder
        self._lock = _lock(Path(folder))
        self._children = [Child(kind, arguments, folder) for kind in ("directory", "node")]

    def start(self) -> bool:
        """Start all and wait until they are ready; False when a signal came first. MoonpoolError when one fails."""
        from moonpool.telemetry.process import read_announcement

        for child in self._children:
            running = read_announcement(self._config.runtime_folder, child.kind)
            if running is not None:
                raise MoonpoolError(
                    f"a {child.kind} runs in {self._config.runtime_folder} already (process {running.process_id}): "
                    "`moonpool top` shows it; stop it, or choose another --runtime-folder",
                    kind="start_failed",
                )
        size_bytes = self._config.node.segment_bytes
        click.echo(f"moonpool: starting a directory and a node with {bytes_text(size_bytes)}", err=True)
        for child in self._children:
            child.start()
        limit_s = _READY_S_MIN + _READY_S_PER_GIB * size_bytes / 2**30
        deadline_s = time.monotonic() + limit_s
        waiting = list(self._children)
        while waiting:
            waiting = [child for child in waiting if not self._ready(child)]
            if waiting and time.monotonic() > deadline_s:
                names = " and ".join(child.kind for child in waiting)
                raise MoonpoolError(f"{names} not ready within {limit_s:.0f} s; see the lines above", kind="timed_out")
            if waiting and _stop_requested(_POLL_S):
                return False
        return True

    def show(self) -> None:
        """Where things are and what to do next."""
        click.echo(f"moonpool: up. Runtime folder {self._config.runtime_folder}")
        for child in self._children:
            found = child.announcement()
            if found is not None:
                click.echo(f"  {child.kind:<10} process {found.process_id:<8} {found.socket}  {found.http}/status")
        click.echo("Next:  moonpool vllm-args   the flags to start vLLM with")
        click.echo("       moonpool top         what happens, live")
        click.echo("       moonpool doctor      whether all fits together")
        click.echo("Ctrl-C stops everything.")

    def watch(self, command: Sequence[str], *, hold: bool) -> int:
        """Until a stop signal, or until the command ends; the exit code."""
        program = _run(command) if command else None
        try:
            while not _stop_requested(self._next_start_s()):
                if program is not None and (code := program.poll()) is not None:
                    program = None
                    if not hold:
                        return code if code >= 0 else 128 - code
                    click.echo(f"moonpool: {command[0]} {exit_text(code)}; Ctrl-C stops the rest.", err=True)
                if not self._keep_running():
                    return 1
            return 0
        finally:
            if program is not None:
                program.terminate()
                program.wait()

    def stop(self) -> None:
        """Stop the node, then the directory."""
        for child in reversed(self._children):
            child.stop()
        os.close(self._lock)

    def _ready(self, child: Child) -> bool:
        code = child.exit_code()
        if code is not None:
            raise MoonpoolError(f"the {child.kind} {exit_text(code)} before it was ready", kind="start_failed")
        return child.announcement() is not None

    def _keep_running(self) -> bool:
        """Restart what died and is due; False when everything is dead and stays so."""
        for child in self._children:
            code = child.exit_code()
            if code is not None and self._restart:
                delay_ms = child.plan_restart()
                when = f"in {delay_ms} ms" if delay_ms else "now"
                click.echo(f"moonpool: the {child.kind} {exit_text(code)}; starting it again {when}", err=True)
            elif code is not None:
                click.echo(
                    f"moonpool: the {child.kind} {exit_text(code)}; `moonpool {child.kind}` starts it again", err=True
                )
            if child.starts_at_s is not None and time.monotonic() >= child.starts_at_s:
                child.start()
        return any(child.process_id or child.starts_at_s is not None for child in self._children)

    def _next_start_s(self) -> float:
        due = [child.starts_at_s for child in self._children if child.starts_at_s is not None]
        return max(0.0, min(due) - time.monotonic()) if due else 3600.0


def _lock(folder: Path) -> int:
    """A descriptor that keeps others from starting in this folder: two that start at once would each get half."""
    prepare_runtime_folder(folder)
    descriptor = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise MoonpoolError(
            f"`moonpool up` runs in {folder} already: `moonpool top` shows it; stop it, or choose another "
            "--runtime-folder",
            kind="start_failed",
        ) from error
    return descriptor


def _stop_requested(timeout_s: float) -> bool:
    """Sleep until a stop signal (True), or a child ended or the time is over (False)."""
    arrived = signal.sigtimedwait(WATCHED_SIGNALS, timeout_s)
    return arrived is not None and arrived.si_signo != signal.SIGCHLD


def _run(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(command), preexec_fn=unblock_signals)  # noqa: PLW1509 - one thread
    except OSError as error:
        raise MoonpoolError(f"cannot run {command[0]}: {error.strerror}", kind="start_failed") from error
