"""Children of `moonpool up`: start, watch, restart, stop. One thread, driven by signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from moonpool.telemetry.process import Announcement, read_announcement

if TYPE_CHECKING:
    from collections.abc import Sequence

WATCHED_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
STOP_MS_MAX = 10_000
_RESTART_MS_MIN = 200
_RESTART_MS_MAX = 5_000
_STABLE_MS = 10_000


class Restarts:
    """How long to wait before a child that died is started again. Pure.

    The first time at once, so that hits are back soon; then 0.2 s, 0.4 s … 5 s while it dies within 10 s each time.
    """

    def __init__(self) -> None:
        self._delay_ms = 0

    def delay_ms(self, ran_ms: float) -> int:
        """Of a child that ran for so long before it died."""
        if ran_ms >= _STABLE_MS:
            self._delay_ms = 0
        delay_ms = self._delay_ms
        self._delay_ms = min(max(_RESTART_MS_MIN, 2 * delay_ms), _RESTART_MS_MAX)
        return delay_ms


class Child:
    """One process of ours: `python -m moonpool <kind> …`, in a session of its own so that Ctrl-C reaches only us."""

    def __init__(self, kind: str, arguments: Sequence[str], runtime_folder: str) -> None:
        self.kind = kind
        self.starts_at_s: float | None = None  # when it is to be started again
        self.started_s = 0.0
        self._command = [sys.executable, "-m", "moonpool", kind, "--die-with-parent", *arguments]
        self._runtime_folder = runtime_folder
        self._restarts = Restarts()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        """Of the running process; 0 when there is none."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it now."""
        self.starts_at_s = None
        self.started_s = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=unblock_signals,  # noqa: PLW1509 - this process has one thread
        )

    def announcement(self) -> Announcement | None:
        """What it announced; None until it is ready."""
        found = read_announcement(self._runtime_folder, self.kind)
        return found if found is not None and found.process_id == self.process_id else None

    def exit_code(self) -> int | None:
        """The exit code when it has just ended (then it is no longer running), else None."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is not None:
            self._process = None
        return code

    def plan_restart(self) -> int:
        """Set `starts_at_s`; returns the delay in ms."""
        now_s = time.monotonic()
        delay_ms = self._restarts.delay_ms((now_s - self.started_s) * 1000)
        self.starts_at_s = now_s + delay_ms / 1000
        return delay_ms

    def stop(self) -> None:
        """SIGTERM and, when that does not help within 10 s, SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # one that somebody stopped could not end
        try:
            self._process.wait(STOP_MS_MAX / 1000)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def unblock_signals() -> None:
    """In a child between fork and exec: the mask of blocked signals would be inherited."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def exit_text(code: int) -> str:
    """-9 → "was killed by SIGKILL"."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
