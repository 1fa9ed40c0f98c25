"""What an engine gets from nodes of other hosts: how much a directory knows of, and the blocks themselves.

Inside a step nothing here connects: a directory that is not connected is not asked, and a thread connects to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import Executor
from typing import Any

from moonpool.pool.holders import Holders, Place, Read, Wanted
from moonpool.types import ReadResult

CONNECT_TIMEOUT_MS = 500
CONNECT_AGAIN_MS = 1_000


class WiderLookup:
    """The first directory that is connected, asked for prefixes that the own node has not whole."""

    def __init__(
        self, make_clients: Callable[[], Sequence[Any]], *, executor: Executor, clock_ms: Callable[[], float]
    ) -> None:
        self._make_clients = make_clients
        self._executor = executor
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._clients: Sequence[Any] | None = None
        self._connect_at_ms = 0.0

    def match(self, namespace_id: int, hints: Any, rules: Any, *, timeout_ms: int) -> int:
        """Blocks that can be fetched from the start on, from whomever; 0 when no directory answers in time."""
        for client in self._connected():
            answer = client.match(namespace_id, hints, rules, timeout_ms=timeout_ms)
            if answer.reachable:
                return int(answer.fetchable)
            return 0  # its time is over
        return 0

    def _connected(self) -> list[Any]:
        with self._lock:
            if self._clients is None:
                self._clients = self._make_clients()
            clients = self._clients
            found = [client for client in clients if client.connected]
            due = not found and bool(clients) and self._clock_ms() >= self._connect_at_ms
            if due:
                self._connect_at_ms = self._clock_ms() + CONNECT_AGAIN_MS
        if due:
            self._executor.submit(_connect_all, clients)
        return found


def _connect_all(clients: Sequence[Any]) -> None:
    for client in clients:
        if not client.connected:
            client.connect(CONNECT_TIMEOUT_MS)


class OtherNodes:
    """Reads what the own node missed from other holders, within the time of the same call."""

    def __init__(
        self,
        make_client: Callable[[str], Any],
        make_directories: Callable[[], Sequence[Any]],
        *,
        clock_ms: Callable[[], float],
    ) -> None:
        self._holders = Holders(make_client, clock_ms=lambda: int(clock_ms()))
        self._make_directories = make_directories
        self._directories: Sequence[Any] | None = None
        self._clock_ms = clock_ms

    def fill(
        self,
        results: MutableSequence[ReadResult],
        keys: Sequence[bytes],
        read: Read,
        *,
        own_incarnation: int,
        timeout_ms: int,
    ) -> None:
        """Replace misses in place; see `moonpool.pool.holders.Holders.fill`. Loads call it, in their own thread."""

        def locate(positions: Sequence[int], budget_ms: int) -> list[list[Place]] | None:
            return self._locate([keys[place] for place in positions], budget_ms)

        deadline_ms = int(self._clock_ms()) + timeout_ms
        wanted = Wanted(keys, read, locate)
        self._holders.fill(results, wanted, own_incarnation=own_incarnation, deadline_ms=deadline_ms)

    def close(self) -> None:
        """Close every connection."""
        self._holders.close()
        for directory in self._directories or ():
            directory.close()

    def _locate(self, keys: list[bytes], budget_ms: int) -> list[list[Place]] | None:
        if self._directories is None:
            self._directories = self._make_directories()
        for directory in self._directories:
            if not directory.connected:
                directory.connect(min(budget_ms, CONNECT_TIMEOUT_MS))
            found = directory.locate(keys, timeout_ms=budget_ms)
            if found is not None:
                return [[Place(address, incarnation) for _, incarnation, address in places] for places in found]
        return None
