"""The façade on a real node: every verb, every kind of value, reconnecting."""

from __future__ import annotations

import ctypes
import os
import time
from array import array
from pathlib import Path

import pytest

import moonpool
from moonpool import Layout, Pieces, Pool, Reason, Status, Tags
from moonpool.errors import AccessDenied, ClosedError, PeerUnavailable, UsageError
from moonpool.testing.cluster import Cluster, value_of, wait_until

MIB = 1024 * 1024


def put_values(pool: Pool, keys: list[str], length: int) -> None:
    results = pool.put({key: value_of(key, length) for key in keys})
    assert all(results.values()), results


def test_what_was_put_is_read_back_by_every_way_of_reading(pool: Pool) -> None:
    keys = ["a", b"\x00binary", "ä"]
    for length in (1, 4096, 5 * MIB):
        names = [f"{length}-{key!r}" for key in keys]
        results = pool.put({name: value_of(name, length) for name in names})
        assert [result.status for result in results.values()] == [Status.STORED] * 3
        targets = [bytearray(length) for _ in names]
        read = pool.get_into(names, targets)
        assert [(result.status, result.byte_count) for result in read] == [(Status.HIT, length)] * 3
        assert targets == [value_of(name, length) for name in names]
        assert pool.get_bytes(names) == [value_of(name, length) for name in names]
        with pool.get(names) as views:
            assert [bytes(view or b"") for view in views] == [value_of(name, length) for name in names]
            assert views.verify()
            assert bytes(views[names[2]] or b"") == value_of(names[2], length)


def test_an_empty_value_is_refused_and_empty_pieces_count_for_nothing(pool: Pool) -> None:
    with pytest.raises(UsageError, match="at least one byte"):
        pool.put({"before": b"x", "empty": b""})
    assert not pool.exists(["before"])[0]
    assert pool.put({"pieces": [b"", b"a", b"", b"b"]})["pieces"].length == 2
    assert pool.get_bytes(["pieces"]) == [b"ab"]


def test_a_value_of_many_pieces_is_one_value(pool: Pool) -> None:
    whole = value_of("vectored", 60 * 1000)
    pieces: list[object] = [bytearray(whole[start : start + 1000]) for start in range(0, len(whole), 1000)]
    assert pool.put({"vectored": pieces})["vectored"].length == len(whole)
    assert pool.get_bytes(["vectored"]) == [whole]
    targets = [bytearray(4000) for _ in range(15)]
    assert pool.get_into(["vectored"], [list(targets)])[0]
    assert b"".join(targets) == whole


def test_address_arrays_move_a_batch(pool: Pool) -> None:
    memory = bytearray(value_of("source", 64 * 1024))
    address, length = pool.register(memory)
    lines = array("Q", range(address, address + length, 1024))
    keys = [f"line-{number}" for number in range(len(lines) // 2)]
    pieces = Pieces(lines, array("Q", [1024]) * len(lines), [2] * len(keys))
    assert all(pool.put(keys, pieces))
    expected = bytes(memory)
    memory[:] = bytes(len(memory))
    assert all(pool.get_into(keys, pieces))
    assert memory == expected
    pool.unregister(address)
    with pytest.raises(UsageError, match="registered"):
        pool.get_into(keys, pieces)


def test_blocks_of_a_layout_go_out_and_come_back_into_other_blocks(pool: Pool) -> None:
    layers, block_count, piece = 6, 16, 512
    caches = [bytearray(value_of(f"layer-{layer}", block_count * piece)) for layer in range(layers)]
    bases = [ctypes.addressof(ctypes.c_char.from_buffer(cache)) for cache in caches]
    layout = Layout(bases, [piece] * layers, [piece] * layers, block_count)
    hashes = list(range(101, 105))
    tags = Tags(7, hashes, [0, *hashes[:-1]])
    keys = [f"block-{number}" for number in hashes]
    assert all(pool.put_blocks(layout, [0, 1, 2, 3], keys, tags=tags))
    assert all(pool.get_blocks(layout, array("Q", [12, 13, 14, 15]), keys))
    for cache in caches:
        assert cache[12 * piece :] == cache[: 4 * piece]
    found = pool.match(7, hashes, timeout_ms=1000)
    assert (found.fetchable_block_count, found.reachable) == (4, True)
    assert pool.match(7, [*hashes, 999], timeout_ms=1000).fetchable_block_count == 4
    assert pool.match(8, hashes, timeout_ms=1000).fetchable_block_count == 0
    with pytest.raises(UsageError, match="past the layout"):
        pool.get_blocks(layout, [16], keys[:1])
    with pytest.raises(UsageError, match="twice"):
        pool.get_blocks(layout, [1, 1], keys[:2])


def test_the_first_put_of_a_key_wins(standing: Cluster, pool: Pool) -> None:
    with standing.connect() as other:
        assert pool.put({"k": b"first"})["k"].status == Status.STORED
        again = other.put({"k": b"first"})["k"]
        assert (again.status, again.length) == (Status.PRESENT, 5)
        assert other.put({"k": b"other length"})["k"].status == Status.CONFLICT
        assert other.get_bytes(["k"]) == [b"first"]


def test_misses_are_values_with_a_reason(pool: Pool) -> None:
    put_values(pool, ["stays", "goes"], 1000)
    assert pool.remove(["goes"])[0].status == Status.DONE
    target = bytearray(b"?" * 1000)
    read = pool.get_into(["goes"], [target])[0]
    assert (read.status, read.byte_count) == (Status.MISS, 0)
    assert target == b"?" * 1000
    with pool.get(["never", "stays"]) as views:
        assert views[0] is None
        assert views["stays"] is not None
        assert not views.results[0]
    assert [result.reason for result in pool.why(["goes", "never"])] == [Reason.REMOVED, Reason.NEVER_STORED]
    assert [bool(result) for result in pool.exists(["stays", "goes"])] == [True, False]
    wrong = pool.get_into(["stays"], [bytearray(999)])[0]
    assert (wrong.status, wrong.reason) == (Status.MISS, Reason.WRONG_LENGTH)


def test_an_object_expires_when_its_time_is_over(pool: Pool) -> None:
    assert pool.put({"short": b"x" * 100}, keep_at_most_ms=50)["short"]
    wait_until(lambda: not pool.exists(["short"])[0], "the object to expire", timeout_s=5)
    assert pool.get_bytes(["short"]) == [None]
    assert pool.why(["short"])[0].reason == Reason.EXPIRED


def test_pinned_objects_stay_while_others_are_evicted(pool: Pool) -> None:
    put_values(pool, ["pinned", "loose"], MIB)
    assert pool.pin(["pinned"])[0]
    for number in range(100):
        put_values(pool, [f"filler-{number}"], MIB)
    assert pool.get_bytes(["pinned"]) == [value_of("pinned", MIB)]
    assert pool.why(["loose"])[0].reason == Reason.EVICTED
    assert pool.unpin(["pinned"])[0]
    for number in range(100, 200):
        put_values(pool, [f"filler-{number}"], MIB)
    assert pool.get_bytes(["pinned"]) == [None]


def test_a_view_stays_whole_after_remove_and_pressure_until_it_is_let_go(pool: Pool) -> None:
    put_values(pool, ["viewed"], MIB)
    with pool.get(["viewed"]) as views:
        view = views[0]
        assert view is not None
        assert view.readonly
        pool.remove(["viewed"])
        for number in range(150):
            put_values(pool, [f"filler-{number}"], MIB)
        assert bytes(view) == value_of("viewed", MIB)
    assert bytes(view) == value_of("viewed", MIB)  # still referenced: still held
    assert pool.stat()["table"]["held_bytes"] > 0
    del view
    wait_until(lambda: pool.put({"poke": b"1"}) and pool.stat()["table"]["held_bytes"] == 0, "the hold to end")


def test_a_view_outlives_the_pool_that_gave_it(cluster: Cluster, pool: Pool) -> None:
    with cluster.connect() as reader:
        put_values(pool, ["viewed"], MIB)
        view = reader.get(["viewed"])[0]
    assert view is not None
    for number in range(150):
        put_values(pool, [f"filler-{number}"], MIB)
    assert bytes(view) == value_of("viewed", MIB)
    assert pool.stat()["table"]["hold_count"] == 1
    del view
    wait_until(lambda: pool.stat()["table"]["hold_count"] == 0, "the hold to end with the last reference")


def test_objects_are_listed_by_prefix(pool: Pool) -> None:
    put_values(pool, [f"list/{number}" for number in range(3000)], 16)
    put_values(pool, ["other"], 16)
    assert {item.key for item in pool.list("list/")} == {f"list/{number}".encode() for number in range(3000)}
    found = next(iter(pool.list("other")))
    assert (found.length, found.pinned) == (16, False)
    assert found.checksum == pool.exists(["other"])[0].checksum


def test_clear_drops_a_namespace_and_nothing_else(pool: Pool) -> None:
    pool.put({"tagged": b"x" * 64}, tags=Tags(5, [1], [0]))
    put_values(pool, ["plain"], 64)
    assert pool.clear(5) == 1
    assert [bool(result) for result in pool.exists(["tagged", "plain"])] == [False, True]
    assert pool.why(["tagged"])[0].reason == Reason.CLEARED


def test_locate_names_the_holder(standing: Cluster, pool: Pool) -> None:
    put_values(pool, ["here"], 64)
    incarnation = standing.node.announcement.incarnation
    assert [holder.incarnation for holder in pool.locate(["here"])[0]] == [incarnation]
    assert pool.locate(["nowhere"]) == [[]]


def test_a_description_is_shown_in_the_status_also_after_a_reconnect(cluster: Cluster, pool: Pool) -> None:
    def shown() -> bool:
        pool.exists(["poke"])
        with cluster.connect(name="observer") as observer:
            return any("marker-17" in str(item["description"]) for item in observer.stat()["connections"])

    assert pool.describe({"engine_id": "marker-17"})
    wait_until(shown, "the description in the status")
    cluster.node.restart()
    wait_until(shown, "the description in the status of the next incarnation")


def test_a_restarted_node_serves_new_puts_of_a_living_client_at_once(cluster: Cluster, pool: Pool) -> None:
    put_values(pool, ["before"], 1000)
    cluster.node.kill()
    assert pool.get_bytes(["before"]) == [None]
    assert pool.put({"meanwhile": b"x"})["meanwhile"].status == Status.REFUSED
    cluster.node.start()
    wait_until(lambda: pool.put({"after": b"again"})["after"], "a put after the restart", timeout_s=10)
    assert pool.get_bytes(["after", "before"]) == [b"again", None]
    assert pool.info["reconnect_count"] >= 1


def test_calls_on_a_stopped_node_end_in_their_time(cluster: Cluster, pool: Pool) -> None:
    put_values(pool, ["k"], 1000)
    with cluster.node.stopped():
        begin = time.monotonic()
        assert pool.get_into(["k"], [bytearray(1000)], timeout_ms=100)[0].reason in (
            Reason.TIMED_OUT,
            Reason.UNAVAILABLE,
        )
        assert not pool.put({"x": b"x" * 100}, timeout_ms=100)["x"]
        assert not pool.match(1, [1], timeout_ms=2)
        waited_s = time.monotonic() - begin
    assert waited_s < 5, "a bound, not a measurement: the calls were given 202 ms"
    wait_until(lambda: pool.get_bytes(["k"])[0] is not None, "reads after SIGCONT", timeout_s=5)


def test_look_ups_are_answered_while_the_directory_is_stopped_or_dead(cluster: Cluster, pool: Pool) -> None:
    assert cluster.directory is not None
    pool.put({"block": b"x" * 64}, tags=Tags(5, [11], [0]))
    with cluster.directory.stopped():
        for _ in range(10):
            assert pool.match(5, [11], timeout_ms=1000).fetchable_block_count == 1
    cluster.directory.kill()
    for _ in range(10):
        assert pool.match(5, [11], timeout_ms=1000).fetchable_block_count == 1
    cluster.directory.start()

    def told() -> bool:
        status = pool.stat()["directories"][0]
        return bool(status["state"] == "ready" or status["acknowledged_sequence"])

    wait_until(told, "the new directory to be told", timeout_s=10)
    assert pool.match(5, [11], timeout_ms=1000).fetchable_block_count == 1


def test_connecting_with_nothing_there_fails_soon_and_says_what_to_do(folder: Path) -> None:
    with pytest.raises(PeerUnavailable, match="moonpool up"):
        moonpool.connect(folder)


def test_a_lazy_pool_is_all_misses_until_a_node_is_there(folder: Path) -> None:
    cluster = Cluster(folder)
    with cluster.connect(lazy=True) as pool:
        assert pool.get_bytes(["k"]) == [None]
        assert pool.put({"k": b"v"})["k"].reason == Reason.UNAVAILABLE
        assert not pool.connected
        try:
            cluster.start()
            wait_until(lambda: pool.put({"k": b"v"})["k"], "a put once the node is there", timeout_s=5)
            assert pool.get_bytes(["k"]) == [b"v"]
        finally:
            cluster.close()


def test_a_wrong_secret_is_refused_with_what_to_check(cluster: Cluster, folder: Path) -> None:
    wrong = folder / "wrong"
    wrong.write_bytes(os.urandom(32))
    wrong.chmod(0o600)
    stranger = Cluster(folder, settings={"secret_file": wrong})
    with pytest.raises(AccessDenied, match="secret"):
        stranger.connect()


def test_connect_takes_a_folder_a_socket_and_a_unix_name(standing: Cluster) -> None:
    folder = standing.folder
    for target in (folder, str(folder / "node.sock"), f"unix:{folder}/node.sock"):
        with moonpool.connect(target, name="tester", tenant="default") as pool:
            assert pool.connected
    with pytest.raises(UsageError, match="a target is"):
        moonpool.connect("")
    with pytest.raises(UsageError, match="unknown option 'tennant'"):
        moonpool.connect(folder, tennant="x")


def test_clients_without_shared_memory_get_the_same_bytes(standing: Cluster, pool: Pool) -> None:
    with standing.connect(shared_memory=False) as remote:
        assert remote.info["transport"] != pool.info["transport"]
        value = value_of("big", 9 * MIB)
        assert remote.put({"big": value})["big"]
        assert pool.get_bytes(["big"]) == [value]
        put_values(pool, ["local"], 3 * MIB)
        assert remote.get_bytes(["local"]) == [value_of("local", 3 * MIB)]
        target = bytearray(3 * MIB)
        assert remote.get_into(["local"], [target])[0]
        assert target == value_of("local", 3 * MIB)


def test_an_embedded_node_needs_nothing_and_leaves_nothing() -> None:
    with moonpool.connect(embedded=True, segment_bytes=16 * MIB) as pool:
        socket_path = Path(pool.address.removeprefix("unix:"))
        assert pool.put({"a": b"alpha", "b": bytearray(b"beta")})
        assert pool.get_bytes(["a", "b", "c"]) == [b"alpha", b"beta", None]
        assert socket_path.exists()
    assert not socket_path.parent.exists()
    with pytest.raises(ClosedError):
        pool.exists(["a"])
    with pytest.raises(UsageError, match="embedded"):
        moonpool.connect("x", embedded=True)


def test_a_forked_child_gets_a_connection_of_its_own(pool: Pool) -> None:
    put_values(pool, ["parent"], 1000)
    connection = pool.info["connection"]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pool.get(["parent"]) as views:
                own = bytes(views[0] or b"") == value_of("parent", 1000)
            stored = bool(pool.put({"child": value_of("child", 1000)})["child"])
            status = 0 if own and stored and pool.info["connection"] != connection else 2
        finally:
            os.write(writer, bytes([status]))
            os._exit(status)
    os.close(writer)
    assert os.read(reader, 1) == b"\x00"
    os.close(reader)
    os.waitpid(child, 0)
    assert pool.get_bytes(["child", "parent"]) == [value_of("child", 1000), value_of("parent", 1000)]
    assert pool.info["connection"] == connection


def test_views_of_the_parent_are_refused_in_a_forked_child(pool: Pool) -> None:
    put_values(pool, ["viewed"], 1000)
    with pool.get(["viewed"]) as views:
        child = os.fork()
        if child == 0:
            try:
                views[0]
            except UsageError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(views[0] or b"") == value_of("viewed", 1000)
