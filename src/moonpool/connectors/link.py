"""Clients of the node, and the thread that keeps them connected.

No step of an engine ever connects or waits for a connection: a step asks `up` (an attribute) and makes a bounded
call, or none. The thread connects, probes a node that went silent, and notices a restart while nobody calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from moonpool.connectors.health import Health

PROBE_TIMEOUT_MS = 250
CONNECT_TIMEOUT_MS = 500
# A node that is up is asked this often, so that its end is known before the next request comes.
WATCH_MS = 250
# Long: the watch is there to find a node that is gone. One that is only slow is found by the calls themselves.
WATCH_TIMEOUT_MS = 1_000


class Client(Protocol):
    """The part of `NodeClient` that a link needs."""

    @property
    def connected(self) -> bool: ...
    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def ping(self, *, timeout_ms: int = 2000) -> bool: ...
    def close(self) -> None: ...


class NodeLink:
    """Some clients of one node with one `Health`. Opens nothing before `start`; a forked child starts anew."""

    def __init__(
        self, make_clients: Callable[[], Sequence[Any]], *, health: Health, clock_ms: Callable[[], float]
    ) -> None:
        self._make_clients = make_clients
        self.health = health
        self._clock_ms = clock_ms
        self._clients: Sequence[Any] = ()
        self._process_id = 0
        self._wake = threading.Event()
        self._stopping = False

    @property
    def up(self) -> bool:
        """Whether calls are worth making now."""
        return self.health.up and self._process_id == os.getpid()

    def client(self, index: int) -> Any:
        """The client of this number; only after `start`."""
        return self._clients[index]

    def start(self) -> None:
        """Make the clients and the thread, once in each process."""
        if self._process_id == os.getpid() or self._stopping:
            return
        self._process_id = os.getpid()
        self._clients = tuple(self._make_clients())
        self._wake = threading.Event()
        threading.Thread(target=self._keep, name="moonpool-link", daemon=True).start()

    def unanswered(self) -> None:
        """A call got no answer in its time; the thread looks at once whether the node is away."""
        self.health.unanswered(self._clock_ms())
        self._wake.set()

    def lost(self) -> None:
        """A call found no connection."""
        self.health.lost(self._clock_ms())
        self._wake.set()

    def stop(self) -> None:
        """Close the clients; the thread ends by itself."""
        self._stopping = True
        self._wake.set()
        for client in self._clients:
            client.close()

    def _keep(self) -> None:
        while not self._stopping:
            due_ms = self.health.probe_in_ms(self._clock_ms())
            if due_ms is None:
                self._wake.wait(WATCH_MS / 1000)
                self._watch()
            elif due_ms > 0:
                self._wake.wait(due_ms / 1000)
            else:
                self.health.probed(self._probe(), self._clock_ms())
            self._wake.clear()

    def _watch(self) -> None:
        for client in self._clients:
            if self._stopping:
                return
            if not client.connected or not client.ping(timeout_ms=WATCH_TIMEOUT_MS):
                if client.connected:
                    self.health.unanswered(self._clock_ms())
                else:
                    self.health.lost(self._clock_ms())

    def _probe(self) -> bool:
        for client in self._clients:
            if self._stopping:
                return False
            if not client.connected and client.connect(CONNECT_TIMEOUT_MS)[0] != 0:
                return False
            if not client.ping(timeout_ms=PROBE_TIMEOUT_MS):
                return False
        return True
