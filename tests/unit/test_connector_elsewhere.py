"""What a connector asks of directories and other nodes, and that a step never connects nor waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

from moonpool.connectors.elsewhere import CONNECT_AGAIN_MS, OtherNodes, WiderLookup
from moonpool.types import ReadResult, Reason, Status

HIT = ReadResult(Status.HIT, length=3, byte_count=3)
MISS = ReadResult(Status.MISS, Reason.NEVER_STORED)


class Directory:
    def __init__(self, *, connected: bool = True, fetchable: int = 0, reachable: bool = True) -> None:
        self.connected, self.fetchable, self.reachable = connected, fetchable, reachable
        self.connects = self.asked = 0
        self.places: list[list[tuple[str, int, str]]] = []
        self.closed = False

    def connect(self, timeout_ms: int) -> tuple[int, str]:
        self.connects += 1
        self.connected = True
        return 0, ""

    def match(self, namespace_id: int, hints: Any, rules: Any, *, timeout_ms: int) -> SimpleNamespace:
        self.asked += 1
        return SimpleNamespace(fetchable=self.fetchable, reachable=self.reachable)

    def locate(self, keys: Sequence[bytes], *, timeout_ms: int) -> list[list[tuple[str, int, str]]] | None:
        self.asked += 1
        return self.places if self.reachable else None

    def close(self) -> None:
        self.closed = True


class Later(Executor):
    """Keeps what it is given until it is told to run it: a step that waited for it would never end."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Any]] = []

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.waiting.append(lambda: call(*arguments, **options))
        return Future()

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def lookup(*directories: Directory) -> tuple[WiderLookup, Later, list[float]]:
    later, clock = Later(), [0.0]
    return WiderLookup(lambda: directories, executor=later, clock_ms=lambda: clock[0]), later, clock


def test_a_connected_directory_says_how_much_anybody_has() -> None:
    wider, later, _ = lookup(Directory(fetchable=7))
    assert wider.match(1, [1], [], timeout_ms=1) == 7
    assert later.waiting == []


def test_a_directory_that_is_not_connected_is_not_asked_in_a_step_and_is_connected_beside_it() -> None:
    directory = Directory(connected=False, fetchable=7)
    wider, later, clock = lookup(directory)
    for _ in range(5):
        assert wider.match(1, [1], [], timeout_ms=1) == 0
    assert (directory.asked, directory.connects, len(later.waiting)) == (0, 0, 1)
    clock[0] += CONNECT_AGAIN_MS
    wider.match(1, [1], [], timeout_ms=1)
    assert len(later.waiting) == 2
    later.run()
    assert wider.match(1, [1], [], timeout_ms=1) == 7


def test_a_directory_that_does_not_answer_in_time_costs_its_time_once() -> None:
    silent, second = Directory(reachable=False), Directory(fetchable=3)
    wider, _, _ = lookup(silent, second)
    assert wider.match(1, [1], [], timeout_ms=1) == 0
    assert second.asked == 0


class Node:
    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys, self.connected, self.closed = keys, True, False
        self.info = {"incarnation": 5, "node": "", "transport": "tcp", "rails": []}

    def close(self) -> None:
        self.closed = True


def test_missed_blocks_are_read_from_the_holders_that_the_directory_names() -> None:
    directory, node = Directory(connected=False), Node([b"b"])
    directory.places = [[("n", 5, "h:1")], []]
    others = OtherNodes(lambda address: node, lambda: [directory], clock_ms=lambda: 1_000.0)
    results = [HIT, MISS, MISS]

    def read(client: Any, positions: Sequence[int], budget_ms: int) -> list[ReadResult]:
        assert client is node
        assert positions == [1]
        return [HIT]

    others.fill(results, [b"a", b"b", b"c"], read, own_incarnation=1, timeout_ms=100)
    assert results == [HIT, HIT, MISS]
    others.close()
    assert (node.closed, directory.closed) == (True, True)


def test_without_an_answering_directory_misses_stay_misses() -> None:
    others = OtherNodes(lambda _: Node([]), lambda: [Directory(reachable=False)], clock_ms=lambda: 1_000.0)
    results = [MISS]
    others.fill(results, [b"a"], lambda *_: [HIT], own_incarnation=1, timeout_ms=100)
    assert results == [MISS]
