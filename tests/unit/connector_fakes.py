"""What the tests of the connector's two sides stand on: one cache group, a request, a link."""

from __future__ import annotations

from typing import Any

from moonpool.connectors.groups import CacheGroup

GROUP = CacheGroup(kv_group=0, kind="full_attention", block_size=32, layer_names=("a",))
NAMESPACE = 77
WAIT_MS = 10_000


def hashes(count: int, *, first: int = 1) -> list[bytes]:
    return [index.to_bytes(32, "big") for index in range(first, first + count)]


class FakeRequest:
    """A request of ten full blocks and one token more."""

    def __init__(self, request_id: str, blocks: int = 10) -> None:
        self.request_id = request_id
        self.block_hashes = hashes(blocks)
        self.token_count = self.prompt_token_count = blocks * 32 + 1
        self.attempt = 0


class FakeLink:
    def __init__(self, client: Any = None) -> None:
        self.up = True
        self.unanswered_count = self.lost_count = 0
        self.started = self.stopped = False
        self._client = client

    def client(self, index: int) -> Any:
        return self._client

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True

    def unanswered(self) -> None:
        self.unanswered_count += 1

    def lost(self) -> None:
        self.lost_count += 1
