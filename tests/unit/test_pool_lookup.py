from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from moonpool.pool.lookup import FULL_ATTENTION, Lookup
from moonpool.types import Match

HASHES = [11, 12, 13, 14]


class Peer:
    """A node or directory that answers with so many blocks, or not at all."""

    def __init__(self, name: str, block_count: int | None, *, warming: bool = False) -> None:
        self.name, self.block_count, self.warming, self.asked = name, block_count, warming, 0
        self.info = {"node": name, "incarnation": 7}

    def match(self, namespace_id: int, hashes: Sequence[int], groups: Any, *, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms >= 1
        self.asked += 1
        reachable = self.block_count is not None
        holders = [(self.name, 7, self.block_count, 2)] if self.block_count else []
        return SimpleNamespace(
            fetchable=self.block_count or 0, holders=holders, warming=self.warming, reachable=reachable
        )

    def locate(self, keys: Sequence[bytes], *, timeout_ms: int) -> list[list[tuple[str, int, str]]] | None:
        self.asked += 1
        if self.block_count is None:
            return None
        return [[(self.name, 7, "unix:/d")] if position < self.block_count else [] for position in range(len(keys))]

    def exists(self, keys: Sequence[bytes], *, timeout_ms: int) -> SimpleNamespace:
        return SimpleNamespace(
            statuses=[5 if position < (self.block_count or 0) else 6 for position in range(len(keys))]
        )


def match(node: Peer, *directories: Peer) -> Match:
    lookup = Lookup(node, directories, "unix:/n")  # type: ignore[arg-type]
    return lookup.match(1, HASHES, FULL_ATTENTION, block_count=len(HASHES), timeout_ms=200)


def test_a_directory_that_knows_all_is_believed_and_the_node_not_asked() -> None:
    node, directory = Peer("node", 4), Peer("directory", 4)
    assert match(node, directory).holders[0].name == "directory"
    assert node.asked == 0


@pytest.mark.parametrize(("told", "own", "expected"), [(None, 3, 3), (2, 3, 3), (3, 1, 3), (0, 0, 0), (3, None, 3)])
def test_the_node_is_asked_when_the_directory_does_not_know_all(
    told: int | None, own: int | None, expected: int
) -> None:
    found = match(Peer("node", own), Peer("directory", told))
    assert (found.fetchable_block_count, found.reachable) == (expected, True)


def test_the_second_directory_is_asked_when_the_first_is_silent_or_warming() -> None:
    silent, second = Peer("first", None), Peer("second", 4)
    assert match(Peer("node", 0), silent, second).fetchable_block_count == 4
    warming = Peer("first", 1, warming=True)
    assert match(Peer("node", 0), warming, second).fetchable_block_count == 4


def test_nobody_to_ask_is_said_to_be_so() -> None:
    found = match(Peer("node", None), Peer("directory", None))
    assert not found
    assert not found.reachable


def test_keys_that_no_directory_knows_are_looked_for_on_the_node() -> None:
    lookup = Lookup(Peer("node", 1), [Peer("directory", 1)], "unix:/n")  # type: ignore[arg-type,list-item]
    places = lookup.locate([b"a", b"b", b"c"], timeout_ms=10)
    assert [[holder.name for holder in holders] for holders in places] == [["directory"], ["node"], []]


class Silent(Peer):
    """Takes all the time that it is given, and says nothing."""

    def __init__(self, clock: list[int]) -> None:
        super().__init__("silent", None)
        self.clock = clock

    def match(self, namespace_id: int, hashes: Sequence[int], groups: Any, *, timeout_ms: int) -> SimpleNamespace:
        self.clock[0] += timeout_ms
        return super().match(namespace_id, hashes, groups, timeout_ms=timeout_ms)

    def locate(self, keys: Sequence[bytes], *, timeout_ms: int) -> None:
        self.clock[0] += timeout_ms

    def exists(self, keys: Sequence[bytes], *, timeout_ms: int) -> SimpleNamespace:
        self.clock[0] += timeout_ms
        return super().exists(keys, timeout_ms=timeout_ms)

    def describe(self, document: str, *, timeout_ms: int) -> bool:
        self.clock[0] += timeout_ms
        return False


def test_a_call_ends_in_its_time_however_many_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr("moonpool.pool.lookup._now_ms", lambda: clock[0])
    directories = [Silent(clock) for _ in range(8)]
    lookup = Lookup(Silent(clock), directories, "unix:/n")  # type: ignore[arg-type]
    for ask in (
        lambda: lookup.match(1, HASHES, FULL_ATTENTION, block_count=4, timeout_ms=80),
        lambda: lookup.locate([b"a"], timeout_ms=80),
        lambda: lookup.describe("{}", timeout_ms=80),
    ):
        clock[0] = 0
        ask()
        assert 40 < clock[0] <= 80 + len(directories)  # each is given a millisecond at least
