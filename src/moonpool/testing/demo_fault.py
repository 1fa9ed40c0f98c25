"""Kills the node at the worst moment: while an engine copies blocks out of it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from moonpool.errors import MoonpoolError

if TYPE_CHECKING:
    from moonpool.testing.demo_stack import Stack
    from moonpool.testing.processes import Progress

SIGN_SECONDS_MAX = 15


async def kill_while_loading(stack: Stack, *, progress: Progress) -> bool:
    """Waits for the first sign of a read on the node, kills it at once. Whether such a sign was seen.

    Without a sign the node is killed after 15 s all the same: then nothing was loaded, and the caller sees that.
    """
    seen = await asyncio.to_thread(_wait_for_read, stack)
    await stack.kill("node")
    progress("  the node was killed (SIGKILL) " + ("while B was reading" if seen else "but B had read nothing"))
    return seen


def _wait_for_read(stack: Stack) -> bool:
    # A thread that asks over the socket: the HTTP face would be too slow to catch a copy of some milliseconds.
    from moonpool import config
    from moonpool._native import NodeClient

    settings = config.load(overrides={"runtime_folder": str(stack.folder)})
    secret = config.secret_key(config.load_secret(settings.runtime_folder, settings.secret_file))
    client = NodeClient(settings.node.socket_path, secret=secret, name="demo", shared_memory=False)
    try:
        reason, message = client.connect(2000)
        if reason:
            raise MoonpoolError(f"the node does not answer the demo: {message}", kind="unavailable")
        before = _reads(client.stat())
        deadline_s = time.monotonic() + SIGN_SECONDS_MAX
        while time.monotonic() < deadline_s:
            if _reads(client.stat()) != before:
                return True
    finally:
        client.close()
    return False


def _reads(document: str | None) -> tuple[int, int]:
    status: dict[str, Any] = json.loads(document or "{}")
    held = sum(int(connection.get("held_bytes", 0)) for connection in status.get("connections", ()))
    return held, int(status.get("counters", {}).get("bytes_read_total", 0))
