"""cases/faults.md 28 and 30 on real processes: clients that stop, take too much, or call out of order."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from array import array
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from client_processes import clients
from raw_peer import RawPeer, map_arena

from moonpool import Layout, Pieces, Pool, Reason, Status
from moonpool.config import load_or_create_secret
from moonpool.errors import ClosedError, UsageError
from moonpool.testing.cluster import Cluster, value_of, wait_until

MB = 1_000_000
MIB = 1024 * 1024


def figures(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = pool.stat()["table"]
    return found


# 28. Stopped, not dead ----------------------------------------------------------------------------------------


def hold_and_reserve(
    pool: Pool, pipe: Connection, place: tuple[str, bytes], held: list[bytes], late: list[bytes]
) -> None:
    """Holds and half writes; when it is let on, reads what it holds, writes the other half and commits."""
    del pool
    path, secret = place
    peer = RawPeer(path, secret, name="stopped")
    holds = peer.hold(held)
    reserved = peer.reserve(late, LATE_BYTES)
    wanted = {item.arena for item in holds} | {item.arena for item in reserved}
    writable = {index: map_arena(peer.arena(index, writable=True)[1], writable=True) for index in wanted}
    for item in reserved:
        writable[item.arena][item.offset : item.offset + LATE_BYTES // 2] = b"!" * (LATE_BYTES // 2)
    pipe.send(([item.status for item in holds], [item.status for item in reserved]))
    pipe.recv()
    whole = all(
        writable[item.arena][item.offset : item.offset + item.length] == value_of(key, HELD_BYTES)
        for item, key in zip(holds, held, strict=True)
    )
    for item in reserved:
        writable[item.arena][item.offset : item.offset + LATE_BYTES] = b"!" * LATE_BYTES
    answers = peer.commit([(item.generation, 0) for item in reserved])
    pipe.send((whole, [(item.status, item.reason) for item in answers]))
    pipe.recv()


HELD_BYTES, LATE_BYTES = 10_000, 100_000


def test_a_stopped_client_keeps_nobody_from_going_on_and_changes_nothing_later(folder: Path) -> None:
    settings = {"node.limits.reservation_ms": 200}
    with Cluster(folder, settings=settings) as cluster, cluster.connect() as pool:
        held = [b"held-%d" % number for number in range(1000)]
        late = [b"late-%d" % number for number in range(100)]
        assert all(pool.put(held, [value_of(key, HELD_BYTES) for key in held]))
        place = (cluster.socket_path, cluster.secret)
        with clients(cluster, 1, hold_and_reserve, place, held, late) as (client,):
            assert client.answer() == ([Status.HIT] * 1000, [Status.STORED] * 100)
            client.stop()
            wait_until(lambda: figures(pool)["quarantined_bytes"] >= 100 * LATE_BYTES, "the space to be quarantined")
            assert figures(pool)["hold_count"] == 1000
            # The others go on: ten times the node's memory passes through what is left of it.
            keys = [f"other-{number}" for number in range(640)]
            for key in keys:
                assert pool.put({key: value_of(key, MB)})[key], f"{key}: the others must find room"
            assert figures(pool)["quarantined_bytes"] >= 100 * LATE_BYTES, "not reused while it may still write"
            kept = [key for key in keys if pool.exists([key])[0]]
            assert len(kept) > 20
            client.pipe.send("go on")
            client.resume()
            whole, answers = client.answer()
            assert whole, "what it held was there to the end"
            assert {status for status, _ in answers} == {Status.REFUSED}
            assert {reason for _, reason in answers} <= {Reason.DEADLINE, Reason.NOT_YOURS}
            assert pool.get_bytes(kept) == [value_of(key, MB) for key in kept]
            assert not any(pool.exists(late))
            wait_until(lambda: figures(pool)["quarantined_bytes"] == 0, "the quarantine to end: it has answered")
            client.kill()
        wait_until(lambda: figures(pool)["hold_count"] == 0, "its holds to end")
        assert pool.clear(0) > 0
        empty = figures(pool)
        assert (empty["used_bytes"], empty["reserved_bytes"], empty["object_count"]) == (0, 0, 0)


def test_one_connection_can_hold_and_reserve_only_its_share(folder: Path) -> None:
    limits = {"held_bytes_per_connection": 4 * MB, "reserved_bytes_per_connection": 5 * MB, "pinned_bytes": 3 * MB}
    settings = {f"node.limits.{name}": value for name, value in limits.items()}
    with Cluster(folder, settings=settings) as cluster, cluster.connect() as pool:
        keys = [f"share-{number}" for number in range(10)]
        assert all(pool.put({key: value_of(key, MB)})[key] for key in keys)
        with pool.get(keys) as views:
            hits = [bool(result) for result in views.results]
            assert 1 <= sum(hits) <= 4
            assert {result.reason for result in views.results if not result} == {Reason.CONNECTION_LIMIT}
            with cluster.connect() as other:
                assert other.get_bytes(keys[-1:]) == [value_of(keys[-1], MB)], "the cap is each connection's own"
        assert pool.get_bytes(keys[:4]) == [value_of(key, MB) for key in keys[:4]]
        pinned = [bool(result) for result in pool.pin(keys)]
        assert 1 <= sum(pinned) <= 3
        with RawPeer(cluster.socket_path, cluster.secret) as greedy:
            reserved = greedy.reserve([b"greedy-%d" % number for number in range(10)], MB)
            assert 1 <= sum(item.status == Status.STORED for item in reserved) <= 5
            assert {item.reason for item in reserved if item.status != Status.STORED} == {Reason.CONNECTION_LIMIT}
            assert pool.put({"fits": value_of("fits", MB)})["fits"], "another connection has room"


# 30. Calls out of order ---------------------------------------------------------------------------------------


def every_call(pool: Pool) -> dict[str, Callable[[], object]]:
    """Each public verb once, with arguments that would be right."""
    memory = ctypes.create_string_buffer(64)
    layout = Layout([ctypes.addressof(memory)], [64], [64], 1)
    return {
        "put": lambda: pool.put({"k": b"v"}),
        "put_blocks": lambda: pool.put_blocks(layout, [0], ["k"]),
        "get": lambda: pool.get(["k"]),
        "get_into": lambda: pool.get_into(["k"], [bytearray(1)]),
        "get_blocks": lambda: pool.get_blocks(layout, [0], ["k"]),
        "get_bytes": lambda: pool.get_bytes(["k"]),
        "exists": lambda: pool.exists(["k"]),
        "match": lambda: pool.match(1, [1]),
        "locate": lambda: pool.locate(["k"]),
        "why": lambda: pool.why(["k"]),
        "list": lambda: list(pool.list()),
        "remove": lambda: pool.remove(["k"]),
        "pin": lambda: pool.pin(["k"]),
        "unpin": lambda: pool.unpin(["k"]),
        "clear": lambda: pool.clear(1),
        "register": lambda: pool.register(bytearray(8)),
        "unregister": lambda: pool.unregister(pool.register(bytearray(8))[0]),
        "describe": lambda: pool.describe({}),
        "stat": lambda: pool.stat(),  # noqa: PLW0108 - None in one test
        "info": lambda: pool.info,
    }


def test_every_verb_is_among_the_calls_that_are_tried() -> None:
    verbs = {name for name in vars(Pool) if not name.startswith("_")}
    assert verbs - {"close", "closed", "connected"} == set(every_call(None))  # type: ignore[arg-type]


def test_every_call_after_close_is_a_clear_error_and_closing_twice_is_none(standing: Cluster) -> None:
    pool = standing.connect()
    calls = every_call(pool)
    for name, call in calls.items():
        call()
        assert not pool.closed, name
    pool.close()
    pool.close()
    for name, call in calls.items():
        with pytest.raises(ClosedError, match="closed"):
            call()
        assert pool.closed, name
    with pytest.raises(ClosedError), pool:
        pass


def test_views_after_their_release_are_a_clear_error(pool: Pool) -> None:
    pool.put({"k": b"v"})
    views = pool.get(["k"])
    views.release()
    views.release()
    for call in (lambda: views[0], lambda: list(views), views.verify):
        with pytest.raises(ClosedError, match="released"):
            call()


def test_wrong_addresses_are_refused_before_a_byte_is_touched(pool: Pool) -> None:
    memory = bytearray(b"?" * 4096)
    address, length = pool.register(memory)
    pool.put({"k": b"v" * 64, "l": b"v" * 64})
    before = pool.stat()["table"]["stored_total"]
    wrong: list[tuple[object, str]] = [
        ((0, 64), "null"),
        ((-64, 64), "null or negative"),
        ((address, -1), "negative"),
        ((address, length + 1), "registered"),
        ((address + length - 63, 64), "registered"),
        ((2**64 - 1, 64), "64 bits"),
        ((address - 1, 64), "registered"),
        (b"constant" * 8, "read-only"),
        ([(address, 32), (0, 32)], "null"),
    ]
    for target, message in wrong:
        with pytest.raises(UsageError, match=message):
            pool.get_into(["l", "k"], [bytearray(64), target])
        if not isinstance(target, bytes):
            with pytest.raises(UsageError, match=message):
                pool.put({"new": target})
    for lines in ([address, address + 32], [address + 32, address]):
        with pytest.raises(UsageError, match="overlap"):
            pool.get_into(["k", "l"], Pieces(array("Q", lines), [64, 64]))
    with pytest.raises(UsageError, match="null"):
        pool.register((0, 10))
    with pytest.raises(UsageError, match="overlaps"):
        pool.register((address + 8, 8))
    assert memory == b"?" * 4096
    assert pool.stat()["table"]["stored_total"] == before
    assert not pool.exists(["new"])[0]


def test_values_past_an_arena_are_refused_with_the_reason_and_nothing_is_evicted(pool: Pool) -> None:
    pool.put({"k": b"v"})
    result = pool.put({"huge": bytes(80 * MIB)})["huge"]
    assert (result.status, result.reason) == (Status.REFUSED, Reason.VALUE_TOO_LARGE)
    assert pool.exists(["k"])[0]


def test_connecting_to_what_never_answers_ends_in_its_time_and_leaves_the_interpreter_free(folder: Path) -> None:
    cluster = Cluster(folder, settings={"client.connect_timeout_ms": 300})
    load_or_create_secret(cluster.folder)  # without one a client does not even try
    turns = 0
    ended = threading.Event()

    def connect() -> None:
        with pytest.raises(ConnectionError):
            cluster.connect()
        ended.set()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(cluster.socket_path)
        silent.listen(8)
        thread = threading.Thread(target=connect)
        thread.start()
        deadline_s = time.monotonic() + 10
        while not ended.is_set() and time.monotonic() < deadline_s:
            turns += 1
        thread.join()
    assert ended.is_set()
    assert turns > 10_000, "another thread ran while connect() waited"


def test_threads_share_one_pool(pool: Pool) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        for turn in range(100):
            key = f"{number}/{turn}"
            value = value_of(key, 20_000)
            if not pool.put({key: value})[key] or pool.get_bytes([key]) != [value]:
                failures.append(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
