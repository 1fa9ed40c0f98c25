"""The native completion queue as futures: one descriptor in each loop that awaits something."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

from moonpool import _native


class Completions:
    """Any thread and any loop. Nothing runs here but in loops that wait for something."""

    def __init__(self, engine: _native.TransferEngine) -> None:
        self._engine = engine
        self._tickets = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = {}
        self._counts: dict[asyncio.AbstractEventLoop, int] = {}  # of what each loop waits for

    async def wait(self, watch: Callable[[int], None]) -> None:
        """Until the ticket that watch() is given is posted."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        ticket = next(self._tickets)
        with self._lock:
            self._waiting[ticket] = (loop, future)
            before = self._counts.get(loop, 0)
            self._counts[loop] = before + 1
        descriptor = self._engine.completion_descriptor
        if not before:
            loop.add_reader(descriptor, self._drain)
        try:
            watch(ticket)
            await future
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)
                left = self._counts.pop(loop) - 1
                if left:
                    self._counts[loop] = left
            if not left:
                loop.remove_reader(descriptor)

    def _drain(self) -> None:
        for ticket in self._engine.take_completed():
            with self._lock:
                found = self._waiting.get(ticket)
            if found is not None:
                loop, future = found
                loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
