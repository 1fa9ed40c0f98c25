"""A directory is soft state: whatever happens to it or to its owners, it ends up saying what is true."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from native_actors import Bed, value_of, wait_until

from moonpool import _native as native
from moonpool.types import Status

if TYPE_CHECKING:
    from native_actors import Server

pytestmark = pytest.mark.process

GROUPS = [(0, 1, 0)]


def put_chain(client: native.NodeClient, first: int, count: int) -> None:
    value = value_of("block", 2000)
    address, length = native.address_of(value)
    hashes = list(range(first, first + count))
    keys = [f"block{number}".encode() for number in hashes]
    tags = native.Tags(9, hashes, [0, *hashes[:-1]])
    assert client.put(keys, [address] * count, [length] * count, tags=tags).statuses == [Status.STORED] * count


def fetchable(client: native.DirectoryClient, first: int, count: int) -> int:
    return client.match(9, list(range(first, first + count)), GROUPS, timeout_ms=5000).fetchable


def is_told(directory: Server) -> bool:
    return directory.status()["state"] == "ready"


def test_a_directory_hears_what_is_stored_and_removed() -> None:
    with Bed() as bed:
        directory = bed.directory()
        asking = bed.directory_client()
        assert asking.match(9, [1], GROUPS, timeout_ms=5000).warming  # nobody has told it anything
        node = bed.node(directories=[bed.directory_path])
        client = bed.client()
        put_chain(client, 1, 10)
        wait_until(lambda: fetchable(asking, 1, 10) == 10)
        found = asking.match(9, list(range(1, 12)), GROUPS, timeout_ms=5000)
        assert found.holders == [("node", client.info["incarnation"], 10, 2)]
        assert not found.warming
        assert asking.locate([b"block3", b"none"]) == [
            [("node", client.info["incarnation"], "unix:" + bed.node_path)],
            [],
        ]
        client.remove([b"block10"])
        wait_until(lambda: fetchable(asking, 1, 10) == 9)
        client.clear(9)
        wait_until(lambda: fetchable(asking, 1, 10) == 0)
        assert node.status()["directories"][0]["state"] == "live"
        assert directory.ask("integrity") == ""


def test_a_directory_hears_of_an_owner_that_stores_nothing() -> None:
    with Bed() as bed:
        directory = bed.directory()
        node = bed.node(directories=[bed.directory_path])
        wait_until(lambda: is_told(directory))

        def heard() -> int:
            return int(node.status()["directories"][0]["acknowledged_sequence"])

        first = heard()
        wait_until(lambda: heard() >= first + 2)
        assert node.status()["directories"][0]["snapshot_count"] == 1
        assert directory.ask("integrity") == ""


def test_a_directory_killed_and_started_again_is_told_everything() -> None:
    """Fault 17."""
    with Bed() as bed:
        directory = bed.directory()
        bed.node(directories=[bed.directory_path])
        put_chain(bed.client(), 1, 2000)
        asking = bed.directory_client()
        wait_until(lambda: fetchable(asking, 1, 2000) == 2000)
        directory.kill()
        assert not asking.match(9, [1], GROUPS, timeout_ms=5000).reachable
        directory = bed.directory()
        wait_until(lambda: fetchable(asking, 1, 2000) == 2000)
        assert is_told(directory)


def test_a_stopped_directory_delays_nobody_and_catches_up() -> None:
    """Fault 18."""
    with Bed() as bed:
        directory = bed.directory()
        node = bed.node(directories=[bed.directory_path])
        client = bed.client()
        asking = bed.directory_client()
        wait_until(lambda: is_told(directory))
        directory.send(signal.SIGSTOP)
        assert not asking.match(9, [1], GROUPS, timeout_ms=20).reachable
        assert not asking.match(9, [1], GROUPS, timeout_ms=60_000).reachable  # at once
        put_chain(client, 1, 3000)
        assert client.match(9, [1, 2, 3], GROUPS, timeout_ms=5000).fetchable == 3
        directory.send(signal.SIGCONT)
        wait_until(lambda: fetchable(asking, 1, 3000) == 3000)
        node.check_integrity()


def test_a_dead_node_is_forgotten_and_its_successor_not_mistaken_for_it() -> None:
    """Fault 20."""
    with Bed() as bed:
        directory = bed.directory()
        asking = bed.directory_client()
        incarnations = set()
        for life in range(8):
            node = bed.node(directories=[bed.directory_path], segment_bytes=4 << 20, arena_bytes=4 << 20)
            client = bed.client()
            incarnations.add(client.info["incarnation"])
            put_chain(client, 1 + life, 5)
            wait_until(lambda first=1 + life: fetchable(asking, first, 5) == 5)
            holders = directory.status()["holders"]
            assert [one["incarnation"] for one in holders] == [client.info["incarnation"]]
            assert directory.status()["index"]["object_count"] == 5
            node.kill()
            wait_until(lambda: not directory.status()["holders"])
        assert len(incarnations) == 8
        assert directory.status()["index"]["entry_count"] == 0
        assert directory.ask("integrity") == ""


@pytest.mark.parametrize("name", ["other", "node"])  # a name is a label
def test_two_nodes_are_two_holders_and_one_leaving_takes_only_its_own(name: str) -> None:
    with Bed() as bed:
        directory = bed.directory()
        other_path = bed.node_path + "2"
        first = bed.node(directories=[bed.directory_path])
        put_chain(bed.client(), 1, 6)
        bed.node(directories=[bed.directory_path], path=other_path, name=name)
        other = native.NodeClient(other_path, secret=bytes(range(16)))
        bed.clients.append(other)
        assert other.connect(5000)[0] == 0
        put_chain(other, 1, 4)
        asking = bed.directory_client()
        wait_until(lambda: len(asking.match(9, list(range(1, 7)), GROUPS, timeout_ms=5000).holders) == 2)
        found = asking.match(9, list(range(1, 7)), GROUPS, timeout_ms=5000)
        assert [(label, count) for label, _, count, _ in found.holders] == [("node", 6), (name, 4)]
        first.kill()
        wait_until(lambda: fetchable(asking, 1, 6) == 4)
        assert directory.ask("integrity") == ""


def test_a_client_may_not_publish() -> None:
    with Bed() as bed:
        directory = bed.directory()
        asking = bed.directory_client()
        assert asking.describe('{"engine": "A"}')
        assert [one["description"] for one in directory.status()["connections"]] == ['{"engine": "A"}']
        stranger = native.DirectoryClient(bed.directory_path, secret=bytes(16))
        assert stranger.connect(5000)[0] == 19
        assert directory.counters()["refused_secret"] == 1
