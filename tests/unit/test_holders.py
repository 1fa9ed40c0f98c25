"""Who is asked for what the own node has not, in which order, and who is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from moonpool.pool.holders import HolderLimits, Holders, Place, Wanted
from moonpool.types import Hint, ReadResult, Reason, Status

HIT = ReadResult(Status.HIT, length=3)
OWN = 1


def missed(reason: Reason) -> ReadResult:
    return ReadResult(Status.MISS, reason)


class Node:
    """One node that gives what it has, or fails as it is told."""

    def __init__(self, incarnation: int, keys: Sequence[str] = (), *, failure: Reason = Reason.NONE) -> None:
        self.incarnation, self.keys, self.failure = incarnation, set(keys), failure
        self.connected = False
        self.connects = 0
        self.asked: list[list[str]] = []
        self.closed = False

    @property
    def info(self) -> dict[str, Any]:
        return {"incarnation": self.incarnation, "node": "", "transport": "tcp", "rails": []}

    def connect(self, timeout_ms: int) -> tuple[int, str]:
        self.connects += 1
        self.connected = self.failure is not Reason.UNAVAILABLE
        return (0, "") if self.connected else (int(Reason.UNAVAILABLE), "away")

    def close(self) -> None:
        self.closed = True


class Bench:
    """Holders over fake nodes and a clock that stands still."""

    def __init__(self, nodes: dict[str, Node], *, limits: HolderLimits | None = None) -> None:
        self.now_ms = 1_000
        self.nodes = nodes
        self.located: list[list[str]] = []
        self.holders = Holders(lambda address: nodes[address], limits=limits, clock_ms=lambda: self.now_ms)  # type: ignore[arg-type,return-value]

    def fill(
        self,
        keys: Sequence[str],
        *,
        hints: Sequence[Hint | None] | None = None,
        known: dict[str, list[str]] | None = None,
        reason: Reason = Reason.NEVER_STORED,
        timeout_ms: int = 1_000,
    ) -> list[ReadResult]:
        results = [missed(reason) for _ in keys]

        def read(client: Any, positions: Sequence[int], budget_ms: int) -> list[ReadResult]:
            assert budget_ms >= 1
            chosen = [keys[position] for position in positions]
            client.asked.append(chosen)
            if client.failure:
                return [missed(client.failure) for _ in chosen]
            return [HIT if key in client.keys else missed(Reason.NEVER_STORED) for key in chosen]

        def locate(positions: Sequence[int], budget_ms: int) -> list[list[Place]] | None:
            self.located.append([keys[position] for position in positions])
            if known is None:
                return None
            return [
                [Place(address, self.nodes[address].incarnation) for address in known.get(keys[position], [])]
                for position in positions
            ]

        wanted = Wanted(keys, read, locate, hints)
        self.holders.fill(results, wanted, own_incarnation=OWN, deadline_ms=self.now_ms + timeout_ms)
        return results


def test_each_holder_is_asked_once_for_all_that_it_has() -> None:
    bench = Bench({"a": Node(2, ["x", "y"]), "b": Node(3, ["z"])})
    found = bench.fill(["x", "y", "z", "w"], known={"x": ["a"], "y": ["a"], "z": ["b"]})
    assert [bool(result) for result in found] == [True, True, True, False]
    assert bench.nodes["a"].asked == [["x", "y"]]
    assert bench.nodes["b"].asked == [["z"]]


def test_a_hint_is_followed_before_any_directory_is_asked() -> None:
    bench = Bench({"a": Node(2, ["x"]), "b": Node(3, ["y"])})
    found = bench.fill(["x", "y"], hints=[Hint("a", 2, 0), None], known={"y": ["b"]})
    assert all(found)
    assert bench.located == [["y"]]


def test_a_wrong_hint_leaves_the_directory() -> None:
    bench = Bench({"a": Node(9, ["x"]), "b": Node(3, ["x"])})
    assert bench.fill(["x"], hints=[Hint("a", 2, 0)], known={"x": ["b"]})[0]
    assert bench.nodes["a"].asked == []  # another incarnation serves there now


@pytest.mark.parametrize("failure", [Reason.UNAVAILABLE, Reason.TIMED_OUT])
def test_another_holder_is_tried_when_one_is_away_and_the_dead_is_remembered(failure: Reason) -> None:
    bench = Bench({"dead": Node(2, failure=failure), "good": Node(3, ["x"])})
    for _ in range(3):
        assert bench.fill(["x"], known={"x": ["dead", "good"]})[0]
    dead = bench.nodes["dead"]
    assert dead.connects <= 1
    assert len(dead.asked) <= 1


def test_a_peer_that_was_away_is_tried_again_later() -> None:
    bench = Bench({"a": Node(2, ["x"], failure=Reason.UNAVAILABLE)})
    assert not bench.fill(["x"], known={"x": ["a"]})[0]
    bench.nodes["a"].failure = Reason.NONE
    assert not bench.fill(["x"], known={"x": ["a"]})[0]
    bench.now_ms += HolderLimits().pause_ms_min
    assert bench.fill(["x"], known={"x": ["a"]})[0]


def test_a_holder_that_had_not_what_was_said_is_left_alone_for_that_key_alone() -> None:
    bench = Bench({"a": Node(2, ["y"])})
    assert [bool(found) for found in bench.fill(["x", "y"], known={"x": ["a"], "y": ["a"]})] == [False, True]
    bench.fill(["x", "y"], known={"x": ["a"], "y": ["a"]})
    assert bench.nodes["a"].asked == [["x", "y"], ["y"]]
    bench.now_ms += HolderLimits().suspect_ms
    bench.fill(["x"], known={"x": ["a"]})
    assert bench.nodes["a"].asked[-1] == ["x"]


def test_the_own_node_is_not_asked_again_nor_anybody_twice() -> None:
    bench = Bench({"own": Node(OWN, ["x"]), "a": Node(2)})
    assert not bench.fill(["x"], hints=[Hint("a", 2, 0)], known={"x": ["own", "a"]})[0]
    assert bench.nodes["own"].asked == []
    assert len(bench.nodes["a"].asked) == 1


def test_at_most_so_many_holders_are_asked_for_one_key() -> None:
    bench = Bench({str(number): Node(10 + number) for number in range(9)}, limits=HolderLimits(tries=3))
    bench.fill(["x"], known={"x": [str(number) for number in range(9)]})
    assert sum(len(node.asked) for node in bench.nodes.values()) == 3


def test_what_no_other_node_can_help_with_asks_nobody() -> None:
    bench = Bench({"a": Node(2, ["x"])})
    assert bench.fill(["x"], known={"x": ["a"]}, reason=Reason.WRONG_LENGTH)[0].reason == Reason.WRONG_LENGTH
    assert bench.located == []


def test_no_time_left_asks_nobody() -> None:
    bench = Bench({"a": Node(2, ["x"])})
    assert not bench.fill(["x"], known={"x": ["a"]}, timeout_ms=0)[0]
    assert bench.nodes["a"].asked == []


def test_no_more_nodes_than_the_limit_stay_connected() -> None:
    nodes = {str(number): Node(10 + number, ["x"]) for number in range(6)}
    bench = Bench(nodes, limits=HolderLimits(client_count=2))
    for address in nodes:
        assert bench.fill(["x"], known={"x": [address]})[0]
    assert [node.closed for node in nodes.values()] == [True] * 4 + [False] * 2


def test_what_is_remembered_of_bad_holders_is_bounded() -> None:
    bench = Bench({"a": Node(2)}, limits=HolderLimits(suspect_count=8))
    for number in range(100):
        bench.fill([f"k{number}"], known={f"k{number}": ["a"]})
    assert len(bench.holders._suspects) == 8


def test_a_socket_of_another_host_is_not_tried() -> None:
    bench = Bench({"unix:/no/such/socket": Node(2, ["x"])})
    assert not bench.fill(["x"], known={"x": ["unix:/no/such/socket"]})[0]
    assert bench.nodes["unix:/no/such/socket"].connects == 0
