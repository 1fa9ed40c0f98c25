"""An engine's event publisher as vLLM has it, over real ZeroMQ sockets: PUB and a ROUTER that replays."""

from __future__ import annotations

import http.server
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec
import zmq

from moonpool.conductor.hashes import HashRules, block_hashes, hints
from moonpool.testing.cluster import wait_until
from moonpool.testing.processes import free_port

END = (-1).to_bytes(8, "big", signed=True)


class StubEngine:
    """Holds a set of blocks, and publishes what happens to it. ``legacy``: events as arrays, replay without topic."""

    def __init__(
        self, rules: HashRules, *, replays: bool = True, buffer_count: int = 10_000, legacy: bool = False
    ) -> None:
        self.rules = rules
        self.legacy = legacy
        self.port, self.replay_port = free_port(), free_port()
        self.replays = replays
        self.buffer_count = buffer_count
        self.held: set[int] = set()
        self._context = zmq.Context()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._begin()

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}" if self.replays else ""

    def _begin(self) -> None:
        self.number = 0
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=self.buffer_count)
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.setsockopt(zmq.LINGER, 0)
        wait_until(lambda: bound(self._publisher, self.port), "the port to be free")  # a socket closes behind our back
        if self.replays:
            self._stop.clear()
            self._thread = threading.Thread(target=self._serve_replay, daemon=True)
            self._thread.start()

    def _end(self) -> None:
        self._publisher.close(0)
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None

    def restart(self) -> None:
        """Another process at the same address, with nothing."""
        self._end()
        self.held.clear()
        self._begin()

    def close(self) -> None:
        self._end()
        self._context.destroy(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve_replay(self) -> None:
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        wait_until(lambda: bound(router, self.replay_port), "the port to be free")
        while not self._stop.is_set():
            if not router.poll(20):
                continue
            client, _, start = router.recv_multipart()
            with self._lock:
                kept = list(self.buffer)
            topic = [] if self.legacy else [b"kv"]
            for number, payload in kept:
                if number >= int.from_bytes(start, "big"):
                    router.send_multipart([client, b"", *topic, number.to_bytes(8, "big"), payload])
            router.send_multipart([client, b"", *(topic and [b""]), END, b""])
        router.close(0)

    # What happens to its cache ------------------------------------------------------------------------------

    def hashes(self, tokens: Sequence[int]) -> list[int]:
        return hints(self.rules, block_hashes(self.rules, tokens)).tolist()

    def store(self, tokens: Sequence[int], *, medium: str = "GPU", lost: bool = False) -> list[int]:
        """The blocks of a prompt are cached."""
        found = self.hashes(tokens)
        self.held.update(found)
        size = self.rules.block_size_tokens
        event: Any = {
            "type": "BlockStored", "block_hashes": found, "parent_block_hash": None,
            "token_ids": list(tokens[: len(found) * size]), "block_size": size, "lora_id": None, "medium": medium,
            "lora_name": None, "group_idx": 0, "kv_cache_spec_kind": "full_attention",
        }  # fmt: skip
        if self.legacy:
            event = ["BlockStored", found, None, list(tokens[: len(found) * size]), size, None, medium]
        self.publish([event], lost=lost)
        return found

    def remove(self, hashes: Sequence[int], *, medium: str = "GPU", lost: bool = False) -> None:
        self.held.difference_update(hashes)
        event: Any = {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": medium, "group_idx": 0}
        if self.legacy:
            event = ["BlockRemoved", list(hashes), medium]
        self.publish([event], lost=lost)

    def clear(self) -> None:
        self.held.clear()
        self.publish([["AllBlocksCleared"] if self.legacy else {"type": "AllBlocksCleared"}])

    def publish(self, events: list[Any], *, lost: bool = False) -> None:
        """``lost``: subscribers never get it; only the replay has it."""
        payload = msgspec.msgpack.encode([float(self.number), events, 0])
        with self._lock:
            number, self.number = self.number, self.number + 1
            if not lost:
                self._publisher.send_multipart([b"kv", number.to_bytes(8, "big"), payload])
            self.buffer.append((number, payload))

    def publish_again(self, number: int) -> None:
        """A message comes a second time."""
        payload = dict(self.buffer)[number]
        self._publisher.send_multipart([b"kv", number.to_bytes(8, "big"), payload])


def bound(socket: zmq.Socket[bytes], port: int) -> bool:
    """Whether it listens now."""
    try:
        socket.bind(f"tcp://127.0.0.1:{port}")
    except zmq.ZMQError as error:
        if error.errno != zmq.EADDRINUSE:
            raise
        return False
    return True


class StubApi:
    """The completions API of an engine: what it is asked is stored by the stub."""

    def __init__(self, answer: Callable[[list[int]], int]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(answer(body["prompt"]))
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
                del format, args

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
