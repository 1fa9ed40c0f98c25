"""cases/faults.md 5, 6, 7, 10, 11, 12 on real processes: what the store must be honest about."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from client_processes import clients, hold_views
from raw_peer import RawPeer, map_arena

from moonpool import Layout, Pool, Reason, Status, Tags
from moonpool.testing.cluster import Cluster, process_state, value_of, wait_until

MB = 1_000_000
MIB = 1024 * 1024


def table(pool: Pool) -> dict[str, Any]:
    """The node's table figures; they must never be negative, nor more than there is."""
    figures: dict[str, Any] = pool.stat()["table"]
    for name, value in figures.items():
        assert 0 <= value < 2**62, f"{name} = {value}"
    assert figures["used_bytes"] <= figures["capacity_bytes"]
    return figures


# 5. One key, 16 writers ---------------------------------------------------------------------------------------


def write_rounds(pool: Pool, pipe: Connection, length: int) -> None:
    """Puts its own value under each key that it is told, and says what came of it."""
    writer = pipe.recv()
    while (key := pipe.recv()) is not None:
        result = pool.put([key], [value_of(f"{writer}/{key}", length)])[0]
        pipe.send((result.status, result.length, pool.exists([key])[0].status, pool.get_bytes([key])[0] is not None))


@pytest.mark.slow
def test_of_16_writers_of_one_key_exactly_one_wins_and_its_value_is_whole(cluster: Cluster, pool: Pool) -> None:
    rounds, writers = 200, 16
    with clients(cluster, writers, write_rounds, MB) as started:
        for number, client in enumerate(started):
            client.pipe.send(number)
        for turn in range(rounds):
            key = f"contested-{turn}"
            for client in started:
                client.pipe.send(key)
            answers = [client.answer() for client in started]
            statuses = [answer[0] for answer in answers]
            assert statuses.count(Status.STORED) == 1, statuses
            assert set(statuses) <= {Status.STORED, Status.PRESENT, Status.CONFLICT}, statuses
            assert all(answer[1:] == (MB, Status.HIT, True) for answer in answers), "exists, with nothing to get"
            winner = statuses.index(Status.STORED)
            assert pool.get_bytes([key]) == [value_of(f"{winner}/{key}", MB)]
    figures = table(pool)
    assert (figures["reservation_count"], figures["reserved_bytes"]) == (0, 0)


# 6. The writer dies between reserve and commit ----------------------------------------------------------------


def reserve_only(pool: Pool, pipe: Connection, folder: str, secret: bytes, keys: list[bytes], length: int) -> None:
    """Reserves with bare hands, writes half of each value, and never commits."""
    del pool
    peer = RawPeer(f"{folder}/node.sock", secret, name="dies")
    reserved = peer.reserve(keys, length)
    arenas = {}
    for item in reserved:
        if item.arena not in arenas:
            arenas[item.arena] = map_arena(peer.arena(item.arena, writable=True)[1], writable=True)
        arenas[item.arena][item.offset : item.offset + length // 2] = b"!" * (length // 2)
    pipe.send([item.status for item in reserved])
    pipe.recv()


def test_what_a_dead_writer_reserved_is_a_miss_free_again_and_writable_at_once(cluster: Cluster, pool: Pool) -> None:
    keys = [b"dies-%d" % number for number in range(25)]
    empty = table(pool)["used_bytes"]
    with clients(cluster, 1, reserve_only, str(cluster.folder), cluster.secret, keys, MB) as (writer,):
        assert set(writer.answer()) == {Status.STORED}
        assert [result.reason for result in pool.exists(keys)] == [Reason.NOT_COMMITTED] * len(keys)
        assert table(pool)["reserved_bytes"] >= len(keys) * MB
        # Writable at once, also while the first writer lives: a reservation never blocks a key.
        assert pool.put([keys[0]], [value_of(keys[0], MB)])[0].status == Status.STORED
        writer.kill()
    wait_until(lambda: table(pool)["reserved_bytes"] == 0, "the space of the dead writer", timeout_s=5)
    assert table(pool)["quarantined_bytes"] == 0
    assert not any(pool.exists(keys[1:]))
    assert all(pool.put(keys[1:], [value_of(key, MB) for key in keys[1:]]))
    assert pool.get_bytes(keys) == [value_of(key, MB) for key in keys]
    assert pool.remove(keys)
    assert table(pool)["used_bytes"] <= empty + 4096


def test_a_commit_of_another_connections_reservation_is_refused(cluster: Cluster, pool: Pool) -> None:
    with RawPeer(cluster.socket_path, cluster.secret) as first:
        generation = first.reserve([b"stolen"], 100)[0].generation
        with RawPeer(cluster.socket_path, cluster.secret) as second:
            refused = second.commit([(generation, 0)])[0]
            assert (refused.status, refused.reason) == (Status.REFUSED, Reason.NOT_YOURS)
            assert second.commit([(generation + 1000, 0)])[0].reason == Reason.NOT_YOURS
    wait_until(lambda: table(pool)["reservation_count"] == 0, "the reservation to go with its connection")
    with RawPeer(cluster.socket_path, cluster.secret) as third:
        late = third.commit([(generation, 0)])[0]
        assert (late.status, late.reason) == (Status.REFUSED, Reason.NOT_YOURS)
    assert pool.get_bytes(["stolen"]) == [None]


# 7. Honest when full ------------------------------------------------------------------------------------------


def test_a_full_node_says_for_each_key_that_there_is_no_room(folder: Path) -> None:
    settings = {"node.limits.pinned_bytes": 64 * MIB, "node.limits.reserved_bytes_per_connection": 64 * MIB}
    with Cluster(folder, settings=settings) as cluster, cluster.connect() as pool:
        pinned: list[str] = []
        for number in range(64):
            key = f"pinned-{number}"
            if not pool.put({key: value_of(key, MIB - 64)})[key]:
                break
            assert pool.pin([key])[0]
            pinned.append(key)
        assert len(pinned) >= 56
        keys = [f"late-{number}" for number in range(100)]
        results = pool.put(keys, [value_of(key, MB) for key in keys])
        stored = [key for key, result in zip(keys, results, strict=True) if result]
        refused = [result.status for result in results if not result]
        assert len(refused) >= 92
        assert set(refused) == {Status.NO_ROOM}
        assert [bool(found) for found in pool.exists(keys)] == [key in stored for key in keys]
        assert pool.get_bytes(stored) == [value_of(key, MB) for key in stored]
        assert pool.get_bytes(pinned) == [value_of(key, MIB - 64) for key in pinned]
        assert pool.stat()["table"]["no_room_total"] >= len(refused)
        assert pool.unpin(pinned[:10])
        assert pool.put({"room": value_of("room", MB)})["room"].status == Status.STORED


# 10. Look-up, then gone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_vanishes_between_look_up_and_read_is_a_shorter_prefix(pool: Pool, seed: int) -> None:
    block_count, piece = 12, 4096
    memory = bytearray(value_of("blocks", block_count * piece))
    address, _ = pool.register(memory)
    layout = Layout([address], [piece], [piece], block_count)
    hashes = list(range(1, block_count + 1))
    keys = [b"block-%d" % number for number in hashes]
    blocks = list(range(block_count))
    assert all(pool.put_blocks(layout, blocks, keys, tags=Tags(3, hashes, [0, *hashes[:-1]])))
    assert pool.match(3, hashes, timeout_ms=1000).fetchable_block_count == block_count
    gone = random.Random(seed).randrange(block_count)
    assert pool.remove([keys[gone]])[0]
    expected = bytes(memory)
    memory[:] = b"?" * len(memory)
    results = pool.get_blocks(layout, blocks, keys)
    prefix = next((place for place, result in enumerate(results) if not result), block_count)
    assert prefix <= gone, f"seed {seed}"
    assert results[gone].reason == Reason.REMOVED
    for place, result in enumerate(results):
        content = memory[place * piece : (place + 1) * piece]
        assert content == (expected[place * piece : (place + 1) * piece] if result else b"?" * piece)
    assert pool.match(3, hashes, timeout_ms=1000).fetchable_block_count <= gone
    assert table(pool)["pin_count"] == 0
    wait_until(lambda: not pool.exists(["poke"])[0] and table(pool)["held_bytes"] == 0, "every hold to end")


# 11. Pins of the dead -----------------------------------------------------------------------------------------


def test_a_thousand_reads_of_killed_processes_keep_nothing(cluster: Cluster, pool: Pool) -> None:
    keys = [f"held-{number}" for number in range(250)]
    assert all(pool.put(keys, [value_of(key, 100_000) for key in keys]))
    with clients(cluster, 4, hold_views, keys) as readers:
        assert [reader.answer() for reader in readers] == [250] * 4
        assert table(pool)["hold_count"] == 1000
        for reader in readers:
            reader.kill()
        wait_until(lambda: table(pool)["hold_count"] == 0, "the holds of the dead to end", timeout_s=5)
    assert table(pool)["held_bytes"] == 0
    fillers = [f"filler-{number}" for number in range(120)]
    assert all(pool.put({key: value_of(key, MB)})[key] for key in fillers)
    assert not any(pool.exists(keys)), "everything that the dead had held can be evicted"


# 12. Reuse under the reader -----------------------------------------------------------------------------------


def read_under_reuse(pool: Pool, pipe: Connection, key_count: int, length: int, read_count: int) -> None:
    """Reads random keys by views and by copies; says how many were hits, and how many were foreign or torn."""
    chance = random.Random(pipe.recv())
    values = {f"reused-{number}": value_of(f"reused-{number}", length) for number in range(key_count)}
    names = list(values)
    target = bytearray(length)
    hits = foreign = 0
    for turn in range(0, read_count, 2):
        key = chance.choice(names)
        if pool.get_into([key], [target])[0]:
            hits += 1
            foreign += target != values[key]
        key = names[turn % key_count]
        with pool.get([key], verify=bool(turn % 4)) as views:
            view = views[0]
            if view is not None:
                hits += 1
                foreign += view != values[key]
            del view
    pipe.send((hits, foreign))
    pipe.recv()


@pytest.mark.slow
def test_no_foreign_byte_is_read_while_the_space_is_reused_at_full_speed(folder: Path) -> None:
    key_count, length, reader_count, reads_each = 96, 60_000, 2, 50_000
    with Cluster(folder, segment_bytes=4 * MIB) as cluster, cluster.connect() as pool:
        keys = [f"reused-{number}" for number in range(key_count)]
        values = [value_of(key, length) for key in keys]
        with clients(cluster, reader_count, read_under_reuse, key_count, length, reads_each) as readers:
            for seed, reader in enumerate(readers):
                reader.pipe.send(seed)
            chance, rounds = random.Random(99), 0
            while not all(reader.pipe.poll() for reader in readers):
                assert all(process_state(reader.process.pid or 0) not in ("", "Z") for reader in readers)
                chosen = chance.sample(range(key_count), 8)
                pool.put([keys[number] for number in chosen], [values[number] for number in chosen])
                rounds += 1
            answers = [reader.answer() for reader in readers]
        assert [foreign for _, foreign in answers] == [0] * reader_count
        assert min(hits for hits, _ in answers) > reads_each // 20, f"too few hits to mean anything: {answers}"
        assert table(pool)["evicted_total"] > key_count, f"too little reuse in {rounds} rounds"
