"""A node inside this process: no service, no configuration, gone with the pool that made it."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from moonpool import _native, config
from moonpool.config import NodeLimits
from moonpool.errors import MoonpoolError, PeerUnavailable, UsageError
from moonpool.pool.memory import require_memory
from moonpool.pool.status import node_state

SEGMENT_BYTES_DEFAULT = 256 * 1024 * 1024
_READY_MS_PER_GIB = 10_000
_READY_MS_MIN = 5_000
_POLL_S = 0.002


class EmbeddedNode:
    """A `NodeServer` on a socket in a folder of its own, with a secret of its own."""

    def __init__(self, segment_bytes: int | None, *, tenant: str) -> None:
        """Returns when the memory is populated. UsageError, MoonpoolError(start_failed), PeerUnavailable."""
        size_bytes = SEGMENT_BYTES_DEFAULT if segment_bytes is None else segment_bytes
        if not isinstance(size_bytes, int):
            raise UsageError(f"segment_bytes={size_bytes!r} must be an int")
        if size_bytes < config.settings.SEGMENT_BYTES_MIN:
            raise UsageError(f"segment_bytes={size_bytes} is too small; at least 1 MiB")
        require_memory(size_bytes, config.read_machine_memory(), name="segment_bytes")
        self.secret = secrets.token_bytes(16)
        self._process_id = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="moonpool-embedded-"))
        self.socket_path = str(self._folder / "node.sock")
        self._server = _native.NodeServer(
            path=self.socket_path,
            name=f"embedded:{self._process_id}",
            site="local",
            secret=self.secret,
            segment_bytes=size_bytes,
            arena_bytes=config.choose_arena_bytes(size_bytes),
            tenants=[tenant],
            directories=[],
            limits=config.native_limits(NodeLimits()),
        )
        # Also when the pool is collected without close(), and at exit: nothing stays behind in /tmp.
        self._stop = weakref.finalize(self, _stop, self._server, self._folder, self._process_id)
        self._start(size_bytes)

    def close(self) -> None:
        """Stop the node and remove its folder. Twice is fine; a forked child leaves the parent's alone."""
        self._stop()

    def _start(self, size_bytes: int) -> None:
        try:
            self._server.start()
        except OSError as error:
            self.close()
            raise MoonpoolError(f"the embedded node cannot start: {error}", kind="start_failed") from error
        limit_ms = max(_READY_MS_MIN, _READY_MS_PER_GIB * size_bytes // 2**30)
        deadline = time.monotonic() + limit_ms / 1000
        while node_state(self._server.status()) == "warming":
            if time.monotonic() > deadline:
                self.close()
                raise PeerUnavailable(f"the embedded node was not ready in {limit_ms} ms", kind="timed_out")
            time.sleep(_POLL_S)


def _stop(server: _native.NodeServer, folder: Path, process_id: int) -> None:
    if os.getpid() != process_id:
        return
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
