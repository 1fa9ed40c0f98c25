"""Several nodes in one pool: a miss on the own node is read from another, and no fault costs more than a miss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from remote_cluster import MIB, address_of, in_time, several, wait_until_told

from moonpool import GroupRule, Layout, Reason, Status, Tags
from moonpool.testing.cluster import value_of, wait_until

VALUES = {f"k{length}": value_of(f"k{length}", length) for length in (100, 5_000, 300_000, 3 * MIB + 1)}
KEYS = list(VALUES)


def test_what_the_own_node_has_not_is_read_from_another(folder: Path) -> None:
    with several(folder, 2) as (here, there), here.connect() as reader, there.connect() as writer:
        assert all(writer.put(VALUES).values())
        wait_until_told(reader, KEYS)
        own = value_of("own", 1000)
        reader.put({"own": own})
        targets = [bytearray(len(VALUES[key])) for key in KEYS]
        results = reader.get_into([*KEYS, "own", "nowhere"], [*targets, bytearray(1000), bytearray(1)])
        assert [result.status for result in results] == [Status.HIT] * 5 + [Status.MISS]
        assert results[5].reason == Reason.NEVER_STORED
        assert targets == list(VALUES.values())
        assert reader.get_bytes([*KEYS, "own"]) == [*VALUES.values(), own]
        known = reader.info["holders"]
        assert [(one["address"], one["transport"], one["connected"]) for one in known] == [
            (address_of(there), "tcp", True)
        ]


def test_pieces_and_blocks_come_from_other_nodes_too(folder: Path) -> None:
    block_bytes, count = 3 * 4096, 6
    cache = bytearray(os.urandom(count * block_bytes))
    copy = bytearray(len(cache))
    keys = [f"b{number}".encode() for number in range(count)]
    with several(folder, 2) as (here, there), here.connect() as reader, there.connect() as writer:
        base, length = writer.register(cache)
        target, _ = reader.register(copy)

        def layout(start: int) -> Layout:
            return Layout([start], [block_bytes], [block_bytes], count)

        tags = Tags(7, list(range(1, count + 1)), [0, *range(1, count)])
        assert all(writer.put_blocks(layout(base), list(range(count)), keys, tags=tags))
        wait_until(
            lambda: reader.match(7, list(range(1, count + 1)), timeout_ms=1000).fetchable_block_count == count,
            "the directory to know the blocks",
        )
        assert all(reader.get_blocks(layout(target), list(range(count)), keys))
        assert copy == cache
        pieces = [[(target + start, 4096) for start in range(0, block_bytes, 4096)]]
        copy[:block_bytes] = bytes(block_bytes)
        assert reader.get_into([keys[0]], pieces)[0]
        assert copy == cache
        assert length == len(cache)


def test_a_hint_is_enough_without_any_directory(folder: Path) -> None:
    with several(folder, 2) as (here, there), there.connect() as writer:
        stored = writer.put({"a": VALUES["k300000"]})["a"]
        assert stored.hint is not None
        assert stored.hint.address == address_of(there)
        assert here.directory is not None
        here.directory.kill()
        with here.connect() as reader:
            target = bytearray(300_000)
            assert not reader.get_into(["a"], [target])[0]
            assert reader.get_into(["a"], [target], hints=[stored.hint])[0]
            assert target == VALUES["k300000"]
            with reader.get(["a"], hints=[stored.hint]) as views:
                assert views["a"] == VALUES["k300000"]


def test_a_hint_of_an_earlier_incarnation_is_a_miss(folder: Path) -> None:
    with several(folder, 2) as (here, there), here.connect() as reader:
        with there.connect() as writer:
            hint = writer.put({"a": b"old"})["a"].hint
        there.node.restart()
        with there.connect() as writer:
            writer.put({"a": b"new"})
            wait_until_told(reader, ["a"])
        assert reader.get_bytes(["a"], hints=[hint]) == [b"new"]  # the directory knows better


def test_objects_with_a_second_holder_survive_the_death_of_the_first(folder: Path) -> None:
    with several(folder, 3) as (here, first, second), here.connect() as reader:
        for place in (first, second):
            with place.connect() as writer:
                writer.put(VALUES)
        with first.connect() as writer:
            writer.put({"only": b"x"})
        wait_until_told(reader, KEYS, 2)
        wait_until_told(reader, ["only"])
        first.node.kill()
        for _ in range(3):  # known to be dead or not, in the directory or not
            assert in_time(lambda: reader.get_bytes(KEYS)) == list(VALUES.values())
        assert in_time(lambda: reader.get_bytes(["only"])) == [None]


def test_a_stopped_holder_is_passed_over_in_bounded_time(folder: Path) -> None:
    with several(folder, 3) as (here, first, second), here.connect() as reader:
        for place in (first, second):
            with place.connect() as writer:
                writer.put(VALUES)
        wait_until_told(reader, KEYS, 2)
        with first.node.stopped():
            for _ in range(4):
                assert in_time(lambda: reader.get_bytes(KEYS, timeout_ms=4_000)) == list(VALUES.values())


def test_a_directory_that_is_gone_costs_misses_and_nothing_else(folder: Path) -> None:
    with several(folder, 2) as (here, there), here.connect() as reader, there.connect() as writer:
        writer.put({"a": b"abc"})
        wait_until_told(reader, ["a"])
        assert here.directory is not None
        here.directory.kill()
        assert in_time(lambda: reader.get_bytes(["a"])) == [None]
        here.directory.start()
        wait_until(lambda: reader.get_bytes(["a"]) == [b"abc"], "the directory to be told again")


def test_remote_reads_can_be_switched_off(folder: Path) -> None:
    with several(folder, 2) as (here, there), there.connect() as writer, here.connect(remote_reads=False) as reader:
        hint = writer.put({"a": b"abc"})["a"].hint
        wait_until_told(reader, ["a"])
        assert reader.get_bytes(["a"], hints=[hint]) == [None]


@pytest.mark.parametrize("own_is_away", [False, True])
def test_match_counts_what_any_node_has(folder: Path, own_is_away: bool) -> None:
    with several(folder, 2) as (here, there), here.connect() as reader, there.connect() as writer:
        tags = Tags(9, [1, 2, 3], [0, 1, 2])
        assert all(writer.put([b"1", b"2", b"3"], [b"x", b"y", b"z"], tags=tags))
        if own_is_away:
            here.node.kill()
        wait_until(
            lambda: reader.match(9, [1, 2, 3], [GroupRule()], timeout_ms=1000).fetchable_block_count == 3,
            "the directory to know the blocks",
        )
        assert reader.get_bytes([b"1", b"2", b"3"]) == [b"x", b"y", b"z"]
