"""cases/faults.md 12 and its kin where the node is on another host: right bytes or a miss, in bounded time."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from client_processes import Client, clients
from remote_cluster import MIB, SILENT_MS, address_of, figures, in_time, listening, remote_pool

from moonpool import Pool, Reason, Status
from moonpool.testing.cluster import Cluster, process_state, value_of, wait_until
from moonpool.testing.hosts import EmulatedHost, Rail, why_not

LENGTH = 20_000
KEY_COUNT = 300
BATCH_COUNT = 25


@contextlib.contextmanager
def on_another_host(folder: Path, **settings: object) -> Iterator[tuple[Cluster, Rail]]:
    """A node in a network of its own; only its socket's file is shared with this one, for the owner's side."""
    secret = folder / "secret"  # where clients of this host look, too
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    with EmulatedHost(rail_count=1, rate="10gbit") as host:
        (rail,) = host.rails
        chosen: dict[str, object] = {
            "secret_file": secret,
            "node.listen": f"{rail.there}:7801",
            "node.limits.remote_silent_ms": SILENT_MS,
            **settings,
        }
        cluster = Cluster(folder, segment_bytes=4 * MIB, directory=False, settings=chosen, node_prefix=host.command([]))
        with cluster:
            yield cluster, rail


def read_remotely(pool: Pool, pipe: Connection, address: str, read_count: int) -> None:
    """Reads random keys over rails, whole batches; says how many were hits, and how many foreign or torn."""
    values = {f"reused-{number}": value_of(f"reused-{number}", LENGTH) for number in range(KEY_COUNT)}
    names = list(values)
    chance = random.Random(pipe.recv())
    hits = foreign = 0
    with Cluster(_folder_of(pool)).connect(node=address) as remote:
        targets = [bytearray(LENGTH) for _ in range(BATCH_COUNT)]
        for turn in range(read_count // BATCH_COUNT):
            keys = chance.sample(names, BATCH_COUNT)
            if turn % 8:
                found = [bool(result) for result in remote.get_into(keys, targets)]
                copies: list[Any] = list(targets)
            else:
                copies = list(remote.get_bytes(keys))
                found = [copy is not None for copy in copies]
            hits += sum(found)
            foreign += sum(hit and copy != values[key] for key, copy, hit in zip(keys, copies, found, strict=True))
    pipe.send((hits, foreign))
    pipe.recv()


def read_while_the_owner_evicts(cluster: Cluster, *, read_count: int) -> None:
    """Two readers in processes of their own beside an owner that puts without end into a full segment."""
    keys = [f"reused-{number}" for number in range(KEY_COUNT)]
    values = [value_of(key, LENGTH) for key in keys]
    reader_count = 2
    with (
        cluster.connect() as owner,
        clients(cluster, reader_count, read_remotely, address_of(cluster), read_count // reader_count) as readers,
    ):
        for seed, reader in enumerate(readers):
            reader.pipe.send(seed)
        chance, rounds = random.Random(12), 0
        while not all(reader.pipe.poll() for reader in readers):
            assert all(process_state(reader.process.pid or 0) not in ("", "Z") for reader in readers)
            chosen = chance.sample(range(KEY_COUNT), 16)
            owner.put([keys[number] for number in chosen], [values[number] for number in chosen])
            rounds += 1
        answers = [reader.answer() for reader in readers]
        assert [foreign for _, foreign in answers] == [0] * reader_count
        assert min(hits for hits, _ in answers) > read_count // reader_count // 20, f"too few hits: {answers}"
        assert figures(owner)["evicted_total"] > KEY_COUNT, f"too little reuse in {rounds} rounds"


@pytest.mark.slow
def test_no_foreign_byte_is_read_over_tcp_while_the_space_is_reused_at_full_speed(folder: Path) -> None:
    with listening(folder, **{"node.segment_bytes": 4 * MIB, "node.limits.remote_silent_ms": 60_000}) as cluster:
        read_while_the_owner_evicts(cluster, read_count=100_000)


needs_host = pytest.mark.skipif(bool(why_not()), reason=f"no emulated host here: {why_not()}")


@needs_host
@pytest.mark.slow
def test_no_foreign_byte_is_read_from_another_host_while_the_space_is_reused(folder: Path) -> None:
    with on_another_host(folder, **{"node.limits.remote_silent_ms": 60_000}) as (cluster, _):
        read_while_the_owner_evicts(cluster, read_count=100_000)


@needs_host
def test_a_cable_that_is_cut_costs_misses_and_what_was_held_is_let_go(folder: Path) -> None:
    with on_another_host(folder) as (cluster, rail), cluster.connect() as owner, remote_pool(cluster) as remote:
        value = value_of("a", MIB)
        assert remote.put({"a": value})["a"].status == Status.STORED
        views = remote.get(["a"])
        assert views["a"] == value
        rail.cut()
        found = in_time(lambda: remote.get_into(["a"], [bytearray(MIB)], timeout_ms=1_000))
        assert found[0].reason in (Reason.TIMED_OUT, Reason.UNAVAILABLE)
        assert not in_time(lambda: remote.put({"b": value}, timeout_ms=1_000))["b"]
        wait_until(lambda: owner.stat()["connections"][-1:] and _remote_count(owner) == 0, "the host to be given up")
        assert figures(owner)["held_bytes"] == 0
        assert figures(owner)["reserved_bytes"] == 0
        rail.heal()
        wait_until(lambda: remote.get_bytes(["a"]) == [value], "the pool to be usable again", timeout_s=20)


def test_a_node_that_is_killed_in_the_middle_of_reads_costs_misses(folder: Path) -> None:
    with listening(folder) as cluster, remote_pool(cluster) as remote:
        values = {f"k{number}": value_of(f"k{number}", MIB) for number in range(24)}
        assert all(remote.put(values).values())
        killer = threading.Timer(0.05, cluster.node.kill)
        killer.start()
        targets = [bytearray(MIB) for _ in values]
        while True:
            found = in_time(lambda: remote.get_into(list(values), targets))
            for (key, value), target, result in zip(values.items(), targets, found, strict=True):
                assert not result or target == value, key
            if not all(found):
                break
        killer.join()
        assert in_time(lambda: remote.get_bytes(list(values))) == [None] * len(values)


def write_and_stop(pool: Pool, pipe: Connection, address: str) -> None:
    """Puts large values over rails again and again, until it is killed."""
    with Cluster(_folder_of(pool)).connect(node=address) as remote:
        pipe.send("begun")
        for number in range(1_000_000):
            remote.put({f"half-{number}": bytes(8 * MIB)})


@pytest.mark.parametrize("turn", range(4))
def test_a_writer_that_is_killed_between_reserve_and_commit_leaves_no_trace(folder: Path, turn: int) -> None:
    with listening(folder) as cluster, cluster.connect() as owner:
        writer = Client(cluster, write_and_stop, address_of(cluster))
        assert writer.answer() == "begun"
        wait_until(lambda: figures(owner)["reserved_bytes"] > 0, "a reservation to be under way")
        writer.kill()
        wait_until(lambda: _remote_count(owner) == 0, "the node to see that it is gone")
        wait_until(lambda: figures(owner)["reserved_bytes"] + figures(owner)["quarantined_bytes"] == 0, "the space")
        for item in owner.list("half-"):
            assert owner.get_bytes([item.key]) == [bytes(8 * MIB)]


def _folder_of(pool: Pool) -> str:
    return pool.address.removeprefix("unix:").removesuffix("/node.sock")


def _remote_count(pool: Pool) -> int:
    return sum(bool(connection["remote"]) for connection in pool.stat()["connections"])
