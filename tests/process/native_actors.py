"""Processes that own one native object each and do what a test tells them, a line at a time.

A test starts an actor with Python source; the source says `tell(value)` and `hear()`. The node and directory actors
answer "status", "counters", "integrity" and "stop".
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from moonpool import _native as native

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = bytes(range(16))
PATIENCE_S = 30.0
SOURCE = Path(native.__file__).parents[1]  # wherever this test's own package comes from

PRELUDE = """
import array, ctypes, hashlib, json, mmap, os, random, signal, sys, threading, time
from moonpool import _native as native

SECRET = bytes(range(16))

def tell(value):
    print(json.dumps(value), flush=True)

def hear():
    line = sys.stdin.readline()
    if not line:
        os._exit(3)
    return json.loads(line)

def client_at(path, **options):
    client = native.NodeClient(path, secret=SECRET, name="actor", **options)
    reason, message = client.connect(10_000)
    assert reason == 0, message
    return client

def value_of(key, byte_count):
    digest = hashlib.sha256(key.encode()).digest()
    return (digest * (byte_count // len(digest) + 1))[:byte_count]

def closed_pages(byte_count):
    # Memory that cannot be touched until open_pages(): whoever copies from or to it stays in the middle of the copy,
    # because Python's handler of SIGSEGV returns and the instruction faults again.
    signal.signal(signal.SIGSEGV, lambda *_: None)
    region = mmap.mmap(-1, byte_count)
    address, _ = native.address_of(region, True)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(byte_count), 0)
    return region, address

def open_pages(address, byte_count):
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(byte_count), protection)
"""

SERVE = """
server.start()
tell("started")
while True:
    ask = hear()
    if ask == "stop":
        server.stop()
        tell("stopped")
        break
    answers = {"status": server.status, "counters": server.counters, "integrity": server.check_integrity}
    tell(answers[ask]())
"""

NODE = PRELUDE + "server = native.NodeServer(secret=SECRET, **hear())\n" + SERVE
DIRECTORY = PRELUDE + "server = native.DirectoryServer(secret=SECRET, **hear())\n" + SERVE


class Actor:
    """A child process that speaks JSON lines."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def tell(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the actor ended with {self.process.wait()}"
        return json.loads(line)

    def ask(self, value: Any) -> Any:
        self.tell(value)
        return self.hear()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:  # it stops soon, not at once
            stat = Path(f"/proc/{self.process.pid}/stat")
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        """Ends it, stopped or not."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Server(Actor):
    """A node or a directory in a process of its own."""

    def __init__(self, source: str, options: dict[str, Any]) -> None:
        super().__init__(source)
        assert self.ask(options) == "started"

    def status(self) -> dict[str, Any]:
        document = json.loads(self.ask("status"))
        assert isinstance(document, dict)
        return document

    def counters(self) -> dict[str, int]:
        answer = self.ask("counters")
        assert isinstance(answer, dict)
        return answer

    def check_integrity(self) -> None:
        assert self.ask("integrity") == ""


class Bed:
    """A folder with sockets, and everything that is started there; its end ends all of it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="mp-")  # short: socket paths have at most 107 bytes
        self.node_path = f"{self.folder.name}/node.sock"
        self.directory_path = f"{self.folder.name}/directory.sock"
        self.actors: list[Actor] = []
        self.clients: list[native.NodeClient | native.DirectoryClient] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        for actor in self.actors:
            actor.end()
        self.folder.cleanup()

    def client(self, **options: Any) -> native.NodeClient:
        """Connected to the node, in the test's own process."""
        client = native.NodeClient(self.node_path, secret=SECRET, name="test", **options)
        assert client.connect(10_000) == (0, "")
        self.clients.append(client)
        return client

    def directory_client(self) -> native.DirectoryClient:
        client = native.DirectoryClient(self.directory_path, secret=SECRET, name="test")
        assert client.connect(10_000) == (0, "")
        self.clients.append(client)
        return client

    def node(self, **options: Any) -> Server:
        settings: dict[str, Any] = {
            "path": self.node_path,
            "name": "node",
            "site": "here",
            "segment_bytes": 32 << 20,
            "arena_bytes": 16 << 20,
            "tenants": [],
            "directories": [],
            "limits": {},
        }
        node = Server(NODE, settings | options)
        self.actors.append(node)
        wait_until(lambda: node.status()["state"] == "ready")
        return node

    def directory(self, **options: Any) -> Server:
        settings: dict[str, Any] = {
            "path": self.directory_path,
            "name": "directory",
            "entry_count_max": 100_000,
            "limits": {},
        }
        directory = Server(DIRECTORY, settings | options)
        self.actors.append(directory)
        return directory

    def actor(self, source: str) -> Actor:
        actor = Actor(PRELUDE + f"PATH = {self.node_path!r}\n" + source)
        self.actors.append(actor)
        return actor


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; fails when it does not come in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come in time"
        time.sleep(0.005)


def value_of(key: str, byte_count: int) -> bytes:
    """The bytes that belong to a key: any foreign or torn byte shows."""
    digest = hashlib.sha256(key.encode()).digest()
    return (digest * (byte_count // len(digest) + 1))[:byte_count]


def put(client: native.NodeClient, values: dict[str, bytes], **options: Any) -> list[int]:
    """Statuses of a put of named values."""
    places = [native.address_of(value) for value in values.values()]
    keys = [key.encode() for key in values]
    return client.put(keys, [place[0] for place in places], [place[1] for place in places], **options).statuses


def get(client: native.NodeClient, key: str, byte_count: int, **options: Any) -> tuple[int, int, bytes]:
    """(status, reason, what is in the buffer afterwards)."""
    buffer = bytearray(byte_count)
    address, length = native.address_of(buffer, writable=True)
    outcome = client.get_into([key.encode()], [address], [length], **options)
    return outcome.statuses[0], outcome.reasons[0], bytes(buffer)
