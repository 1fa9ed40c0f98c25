"""Clients in processes of their own, for the fault tests: each function runs in a fresh interpreter."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import moonpool
from moonpool.pool.client import Pool
from moonpool.testing.cluster import Cluster, process_state, wait_until

FRESH = multiprocessing.get_context("spawn")
ANSWER_S_MAX = 60.0


class Client:
    """A process that runs `body(pool, pipe, *arguments)` on a pool of its own."""

    def __init__(self, cluster: Cluster, body: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = FRESH.Pipe()
        self.process = FRESH.Process(target=_run, args=(str(cluster.folder), body, theirs, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def answer(self) -> Any:
        """What it sends next; AssertionError when it sends nothing within 60 s or has ended."""
        assert self.pipe.poll(ANSWER_S_MAX), f"a client said nothing for {ANSWER_S_MAX} s"
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join(5)
            raise AssertionError(f"a client ended with exit code {self.process.exitcode}") from None

    def ask(self, question: Any) -> Any:
        self.pipe.send(question)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        """SIGSTOP; returns when it is stopped."""
        assert self.process.pid is not None
        process_id = self.process.pid
        os.kill(process_id, signal.SIGSTOP)
        wait_until(lambda: process_state(process_id) in ("T", "t"), "the client to be stopped")

    def resume(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def clients(cluster: Cluster, count: int, body: Callable[..., None], *arguments: Any) -> Iterator[list[Client]]:
    """So many of them; killed at the end."""
    started = [Client(cluster, body, *arguments) for _ in range(count)]
    try:
        yield started
    finally:
        for client in started:
            client.kill()


def _run(folder: str, body: Callable[..., None], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    with moonpool.connect(folder) as pool:
        body(pool, pipe, *arguments)


def hold_views(pool: Pool, pipe: Connection, keys: list[str]) -> None:
    """Holds one view of each key and never lets go."""
    held = [pool.get([key]) for key in keys]
    pipe.send(sum(views[0] is not None for views in held))
    pipe.recv()
