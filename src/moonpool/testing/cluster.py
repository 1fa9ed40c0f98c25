"""A real node and a real directory in a folder of their own, for tests: start, kill, stop, resume, restart.

>>> with Cluster(folder) as cluster, cluster.connect() as pool:   # doctest: +SKIP
...     cluster.node.kill()
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from moonpool import config
from moonpool.pool.connect import open_pool
from moonpool.telemetry.process import Announcement, read_announcement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from moonpool.pool.client import Pool

SEGMENT_BYTES = 64 * 1024 * 1024
START_S_MAX = 30.0
STOP_S_MAX = 15.0
_POLL_S = 0.005


class ServerProcess:
    """One node or directory under test."""

    def __init__(self, kind: str, folder: Path, flags: Sequence[str], *, prefix: Sequence[str] = ()) -> None:
        """prefix: a command that runs another one, such as ``ip netns exec NAME``."""
        self.kind = kind
        self._prefix = list(prefix)
        self.log = folder / f"{kind}.log"
        self._folder = folder
        self._flags = [argument for flag in flags for argument in ("--set", flag)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        """Of the running process; AssertionError when it is not running."""
        assert self._process is not None, f"the {self.kind} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def announcement(self) -> Announcement:
        """Its HTTP address, incarnation and so on."""
        found = read_announcement(self._folder, self.kind)
        assert found is not None, f"the {self.kind} has announced nothing; its log is {self.log}"
        return found

    def start(self, *, wait: bool = True) -> None:
        """Start it and, by default, wait until it is ready. AssertionError with its log when it does not get so."""
        assert not self.running, f"the {self.kind} runs already"
        command = [*self._prefix, sys.executable, "-m", "moonpool", self.kind, "--die-with-parent", *self._flags]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """AssertionError with the end of its log when it ends, or is not ready in 30 s."""
        wait_until(
            lambda: not self.running or self._ready(),
            f"the {self.kind} to be ready; the end of its log:\n{self.log_end()}",
            timeout_s=START_S_MAX,
        )
        assert self.running, f"the {self.kind} ended at its start:\n{self.log_end()}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM: an orderly end. Returns the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """SIGKILL and start again."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """SIGSTOP: there, but silent. Returns when the kernel says that it is stopped."""
        os.kill(self.process_id, signal.SIGSTOP)
        wait_until(lambda: process_state(self.process_id) in ("T", "t"), f"the {self.kind} to be stopped")

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.process_id, signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stopped inside the block."""
        self.stop()
        try:
            yield
        finally:
            self.resume()

    def log_end(self) -> str:
        """The last lines that it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:]) if self.log.exists() else ""

    def _ready(self) -> bool:
        found = read_announcement(self._folder, self.kind)
        return found is not None and found.process_id == self.process_id

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        if how != signal.SIGKILL:
            self._process.send_signal(signal.SIGCONT)
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the {self.kind} did not end in {STOP_S_MAX} s:\n{self.log_end()}") from None
        self._process = None
        return code


class Cluster:
    """A directory and a node on sockets below `folder`, with HTTP on any free ports.

    settings: by their full names, such as {"node.limits.reservation_ms": 500}. node_prefix: a command that runs the
    node, such as that of an `EmulatedHost`. As a context manager it starts
    both, and kills what is left at the end.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        directory: bool = True,
        settings: Mapping[str, object] | None = None,
        node_prefix: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder)
        flags = {
            "runtime_folder": str(self.folder),
            "node.segment_bytes": segment_bytes,
            "node.name": "node-under-test",
            "node.http_port": 0,
            "directory.name": "directory-under-test",
            "directory.http_port": 0,
            **(settings or {}),
        }
        self.flags = [f"{name}={value}" for name, value in flags.items()]
        self.config = config.load(overrides=self.flags)
        self.node = ServerProcess("node", self.folder, self.flags, prefix=node_prefix)
        self.directory: ServerProcess | None = (
            ServerProcess("directory", self.folder, self.flags) if directory else None
        )

    @property
    def socket_path(self) -> str:
        """The node's socket."""
        return self.config.node.socket_path

    @property
    def secret(self) -> bytes:
        """The 16 bytes that native clients take."""
        return config.secret_key(config.load_secret(self.config.runtime_folder, self.config.secret_file))

    def connect(self, *, lazy: bool = False, **client: Any) -> Pool:
        """A pool on this node; client: fields of `ClientSettings`."""
        chosen = msgspec.structs.replace(self.config.client, **client)
        return open_pool(msgspec.structs.replace(self.config, client=chosen), lazy=lazy)

    def start(self) -> None:
        """Start both and wait until they are ready."""
        if self.directory is not None:
            self.directory.start(wait=False)
        self.node.start(wait=False)
        for server in self._servers():
            server.wait_until_ready()

    def close(self) -> None:
        """Kill what is left."""
        for server in self._servers():
            server.kill()

    def arguments(self) -> list[str]:
        """Options that make a `moonpool` command use this cluster."""
        return [argument for flag in self.flags for argument in ("--set", flag)]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _servers(self) -> list[ServerProcess]:
        return [self.node] if self.directory is None else [self.directory, self.node]


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = 10.0) -> None:
    """Until condition() is true; AssertionError naming what was waited for when it stays false for timeout_s."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(_POLL_S)


def process_state(process_id: int) -> str:
    """The letter of /proc/PID/stat: R, S, T (stopped), Z (ended, not waited for) …; "" when there is none."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def value_of(key: str | bytes, length: int) -> bytes:
    """The value of a key: derived from its SHA-256 and without a period, so that any foreign or torn byte shows."""
    name = key.encode() if isinstance(key, str) else key
    return random.Random(hashlib.sha256(name).digest()).randbytes(length)
