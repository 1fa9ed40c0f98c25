"""Kills the node at the worst moment: while an engine copies blocks out of it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

from moonpool.errors import MoonpoolError

if TYPE_CHECKING:
    from moonpool.testing.demo_stack import Stack
    from moonpool.testing.processes import Progress

POLL_S = 0.005  # the node answers these questions too: asking without a pause would slow its look-ups down


async def kill_while_loading(stack: Stack, *, until: asyncio.Future[Any], force: bool, progress: Progress) -> bool:
    """Waits for the first sign of a read on the node and kills it at once. Whether it was killed.

    Gives up when `until` is done and nothing was read: then the node lives on, unless `force` says to kill it anyway.
    """
    ended = threading.Event()
    until.add_done_callback(lambda _: ended.set())
    seen = await asyncio.to_thread(_wait_for_read, stack, ended)
    if seen or force:
        await stack.kill("node")
        progress("  the node was killed (SIGKILL) " + ("while B was reading" if seen else "though B had read nothing"))
        return True
    progress("  B read nothing (a busy machine?); once more with new prefixes")
    return False


def _wait_for_read(stack: Stack, ended: threading.Event) -> bool:
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
        while not ended.wait(POLL_S):
            if _reads(client.stat()) != before:
                return True
    finally:
        client.close()
    return False


def _reads(document: str | None) -> tuple[int, int]:
    status: dict[str, Any] = json.loads(document or "{}")
    held = sum(int(connection.get("held_bytes", 0)) for connection in status.get("connections", ()))
    return held, int(status.get("counters", {}).get("bytes_read_total", 0))
