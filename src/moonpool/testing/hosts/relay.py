"""A TCP relay that behaves like a bad line, for machines whose kernel has no netem."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from types import TracebackType
from typing import Self

from moonpool.errors import MoonpoolError

CHUNK_BYTES = 64 * 1024
RETRANSMIT_S = 0.2  # what a lost packet costs a TCP stream at least: the smallest timeout of the usual stacks
START_TIMEOUT_S = 10


class Relay:
    """Relays every connection to ``target`` ("host:port"). Its settings may change while it runs.

    delay_s: every chunk comes so much later, in order. loss: the share of chunks that are "lost": like a lost packet
    under TCP, such a chunk and all behind it come a retransmission later. Losses are drawn from ``seed``.
    """

    def __init__(self, target: str, *, delay_s: float = 0, loss: float = 0, seed: int = 0) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host.strip("[]"), int(port))
        self.delay_s = delay_s
        self.loss = loss
        self.address = ""
        self.relayed_bytes = 0
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        self._started = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def fall_silent(self) -> None:
        """From now on nothing comes through, on connections old and new; nobody is told."""
        self._call(self._speaks.clear)

    def speak(self) -> None:
        """Undo `fall_silent`: what was held back comes through now."""
        self._call(self._speaks.set)

    def reset(self) -> None:
        """Reset every connection; new ones are taken."""

        def abort() -> None:
            for writer in self._writers:
                writer.transport.abort()

        self._call(abort)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S) or not self.address:
            raise MoonpoolError("the relay did not start", kind="start_failed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_S)

    def _call(self, change: object) -> None:
        """In the relay's thread, and done when this returns."""
        done = threading.Event()

        def both() -> None:
            assert callable(change)
            change()
            done.set()

        self._loop.call_soon_threadsafe(both)
        if not done.wait(START_TIMEOUT_S):
            raise MoonpoolError("the relay has ended", kind="start_failed")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
            self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
            self._started.set()
            self._loop.run_forever()
            server.close()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            for writer in self._writers:
                writer.transport.abort()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._started.set()
            self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            task = self._loop.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Reads at once and writes when it is time, so that a delay costs latency and not bandwidth."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        writing = self._loop.create_task(self._write_in_time(chunks, sink))
        self._tasks.add(writing)
        writing.add_done_callback(self._tasks.discard)
        due = 0.0
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                lost_s = RETRANSMIT_S if self._random.random() < self.loss else 0
                due = max(due, self._loop.time() + self.delay_s) + lost_s
                await chunks.put((due, chunk))
        await chunks.put((due, b""))

    async def _write_in_time(self, chunks: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, chunk = await chunks.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                await self._speaks.wait()
                if not chunk:
                    break
                sink.write(chunk)
                await sink.drain()
                self.relayed_bytes += len(chunk)
        self._writers.discard(sink)
        sink.transport.abort() if sink.transport.is_closing() else sink.close()
