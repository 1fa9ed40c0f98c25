"""Processes that die or stop at the worst moment: writers, readers, the node itself."""

from __future__ import annotations

import fcntl
import os
import signal
import socket

import pytest
from native_actors import Actor, Bed, Server, get, put, value_of, wait_until

from moonpool.types import Reason, Status

pytestmark = pytest.mark.process

MIB = 1 << 20

# Puts KEY, whose second half cannot be read until the test says so: it stays between reserve and commit.
WRITER = """
client = client_at(PATH)
region, address = closed_pages(4 << 20)
head = value_of("head", 4 << 20)
def put():
    start, length = native.address_of(head)
    outcome = client.put([b"key"], [start, address], [length, 4 << 20], [2], timeout_ms=600_000)
    tell([outcome.statuses, outcome.reasons])
threading.Thread(target=put, daemon=True).start()
hear()
open_pages(address, 4 << 20)
hear()
"""

# Reads KEY into memory that cannot be written until the test says so: it stays between hold and release.
READER = """
client = client_at(PATH)
region, address = closed_pages(1 << 20)
def get():
    outcome = client.get_into([b"key"], [address], [1 << 20], timeout_ms=600_000)
    tell([outcome.statuses, outcome.reasons])
threading.Thread(target=get, daemon=True).start()
hear()
open_pages(address, 1 << 20)
hear()
"""


# The same for a value that the node lists: nothing on the node shows this reader, so it says when its copy has begun.
READER_OF_LISTED = """
client = client_at(PATH)
half = 1 << 19
head = bytearray(half)
region, address = closed_pages(half)
def get():
    start, length = native.address_of(head, writable=True)
    outcome = client.get_into([b"key"], [start, address], [length, half], [2], timeout_ms=600_000)
    tell([outcome.statuses, outcome.reasons])
threading.Thread(target=get, daemon=True).start()
expected = value_of("key", 2 * half)[:half]
while head != expected:
    pass
tell("begun")
hear()
open_pages(address, half)
hear()
"""
UNLISTED_MS = 600_000  # a value that expires is held for a read; others are found in the node's catalogue


def reserving(bed: Bed, node: Server) -> Actor:
    writer = bed.actor(WRITER)
    wait_until(lambda: node.status()["table"]["reservation_count"] == 1)
    return writer


def test_a_writer_killed_between_reserve_and_commit_leaves_a_miss_and_its_space() -> None:
    """Fault 6."""
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        writer = reserving(bed, node)
        assert get(client, "key", 8 * MIB)[:2] == (Status.MISS, Reason.NOT_COMMITTED)
        # A reservation never blocks a key.
        assert put(client, {"key": value_of("mine", 5000)}) == [Status.STORED]
        writer.kill()
        wait_until(lambda: node.status()["table"]["reserved_bytes"] == 0)
        table = node.status()["table"]
        assert (table["quarantined_bytes"], table["object_count"]) == (0, 1)
        assert get(client, "key", 5000)[2] == value_of("mine", 5000)
        node.check_integrity()


def test_a_stopped_writer_is_quarantined_and_its_late_commit_refused() -> None:
    """Fault 28: its space is not used again while it might still write."""
    with Bed() as bed:
        node = bed.node(limits={"reservation_ms": 200})
        client = bed.client()
        writer = reserving(bed, node)
        writer.send(signal.SIGSTOP)
        wait_until(lambda: node.status()["table"]["quarantined_bytes"] > 8 * MIB)
        keys = [f"key{index}" for index in range(60)]
        statuses = put(client, {key: value_of(key, MIB) for key in keys})
        assert statuses[-1] == Status.STORED  # the others go on
        assert node.status()["table"]["quarantined_bytes"] > 8 * MIB
        writer.send(signal.SIGCONT)
        writer.tell("open")
        assert writer.hear() == [[Status.REFUSED], [Reason.DEADLINE]]
        for key in keys:
            status, _, found = get(client, key, MIB)
            assert status == Status.MISS or found == value_of(key, MIB)
        wait_until(lambda: node.status()["table"]["quarantined_bytes"] == 0)
        assert get(client, "key", 8 * MIB)[0] == Status.MISS
        node.check_integrity()


def test_a_reader_that_was_away_too_long_never_takes_foreign_bytes_for_a_hit() -> None:
    """Fault 12: its hold was revoked, and the space used again, in the middle of its copy."""
    with Bed() as bed:
        node = bed.node(limits={"copy_hold_ms": 200})
        client = bed.client()
        put(client, {"key": value_of("key", MIB)}, keep_at_most_ms=UNLISTED_MS)
        reader = bed.actor(READER)
        wait_until(lambda: node.status()["table"]["hold_count"] == 1)
        reader.send(signal.SIGSTOP)
        client.remove([b"key"])
        wait_until(lambda: node.status()["table"]["held_bytes"] == 0)
        for index in range(60):
            put(client, {f"key{index}": value_of(str(index), MIB)})
        reader.send(signal.SIGCONT)
        reader.tell("open")
        assert reader.hear() == [[Status.MISS], [Reason.DEADLINE]]


def test_a_reader_without_a_hold_whose_space_is_used_again_has_a_miss() -> None:
    """Fault 12: the value goes, and others take its space, in the middle of its copy."""
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        put(client, {"key": value_of("key", MIB)})
        reader = bed.actor(READER_OF_LISTED)
        assert reader.hear() == "begun"
        assert node.status()["table"]["hold_count"] == 0
        client.remove([b"key"])
        for index in range(60):
            put(client, {f"key{index}": value_of(str(index), MIB)})
        reader.tell("open")
        assert reader.hear() == [[Status.MISS], [Reason.REMOVED]]


def test_a_stopped_node_serves_what_it_has_listed() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("key", MIB)
        put(client, {"key": value})
        assert get(client, "key", MIB) == (Status.HIT, Reason.NONE, value)
        node.send(signal.SIGSTOP)
        assert get(client, "key", MIB, timeout_ms=1) == (Status.HIT, Reason.NONE, value)
        assert client.exists([b"key"], timeout_ms=1).statuses == [Status.HIT]
        node.send(signal.SIGCONT)
        client.exists([b"absent"])  # a message takes along what the node has not heard of yet
        wait_until(lambda: node.status()["table"]["hit_total"] == 2)
        node.check_integrity()


def test_holds_of_the_dead_are_let_go() -> None:
    """Fault 11."""
    with Bed() as bed:
        node = bed.node(limits={"copy_hold_ms": 600_000})
        client = bed.client()
        put(client, {"key": value_of("key", MIB)})
        viewer = bed.actor(
            "client = client_at(PATH)\n"
            "views = [client.get_views([b'key'])[0] for _ in range(1000)]\n"
            "tell(sum(1 for (view,) in views if view is not None))\n"
            "hear()\n"
        )
        assert viewer.hear() > 0
        reader = bed.actor(READER)
        wait_until(lambda: node.status()["table"]["hold_count"] > 1)
        client.remove([b"key"])
        assert node.status()["table"]["held_bytes"] > 0
        viewer.kill()
        reader.kill()
        wait_until(lambda: node.status()["table"]["hold_count"] == 0)
        assert node.status()["table"]["used_bytes"] == 0
        node.check_integrity()


def test_a_connection_lost_while_its_process_lives_is_quarantined_until_the_process_exits() -> None:
    with Bed() as bed:
        node = bed.node(limits={"frame_ms": 200})
        # It reserves and holds by the protocol's own bytes, then closes its socket without a goodbye.
        actor = bed.actor(
            "client = client_at(PATH)\n"
            "region, address = closed_pages(4 << 20)\n"
            "import socket\n"
            "def put():\n"
            "    outcome = client.put([b'key'], [address], [4 << 20], timeout_ms=600_000)\n"
            "    tell([outcome.statuses, outcome.reasons])\n"
            "threading.Thread(target=put, daemon=True).start()\n"
            "hear()\n"
            "for entry in os.listdir('/proc/self/fd'):\n"
            "    try:\n"
            "        if os.readlink('/proc/self/fd/' + entry).startswith('socket:'):\n"
            "            socket.socket(fileno=os.dup(int(entry))).shutdown(socket.SHUT_RDWR)\n"
            "    except OSError:\n"
            "        pass\n"
            "tell('closed')\n"
            "hear()\n"
            "open_pages(address, 4 << 20)\n"
            "hear()\n"
        )
        wait_until(lambda: node.status()["table"]["reservation_count"] == 1)
        assert actor.ask("close") == "closed"
        wait_until(lambda: not node.status()["connections"])
        assert node.status()["table"]["quarantined_bytes"] > 4 * MIB
        actor.tell("open")
        assert actor.hear() == [[Status.REFUSED], [Reason.UNAVAILABLE]]
        assert node.status()["table"]["quarantined_bytes"] > 4 * MIB
        actor.kill()
        wait_until(lambda: node.status()["table"]["quarantined_bytes"] == 0)
        assert node.counters()["departed_count"] == 0
        node.check_integrity()


def test_a_client_finds_the_restarted_node_by_itself() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("key", MIB)
        put(client, {"key": value})
        (view,), _ = client.get_views([b"key"])
        assert view is not None
        before = client.info["incarnation"]
        node.kill()
        assert get(client, "key", MIB)[:2] == (Status.MISS, Reason.UNAVAILABLE)
        assert put(client, {"other": value}) == [Status.REFUSED]
        assert not client.connected
        node = bed.node()
        wait_until(client.ping)
        assert client.info["incarnation"] != before
        assert get(client, "key", MIB)[:2] == (Status.MISS, Reason.NEVER_STORED)
        assert put(client, {"key": value}) == [Status.STORED]
        assert bytes(memoryview(view)) == value  # the old mapping lives as long as its last view
        view.release()
        assert node.status()["table"]["hold_count"] == 0


def test_an_idle_client_lets_go_of_a_dead_nodes_memory() -> None:
    """Or the old segment would stay taken while the node that follows asks for its own."""
    with Bed() as bed:
        node = bed.node()
        idle = bed.actor("""
client = client_at(PATH)
value = value_of("key", 1 << 20)
address, length = native.address_of(value)
client.put([b"key"], [address], [length])
(view,), _ = client.get_views([b"key"])
def is_mapped():
    with open("/proc/self/maps") as maps:
        return "memfd:moonpool-node" in maps.read()
tell(is_mapped())
hear()
shown = memoryview(view)
assert shown == value and is_mapped(), "a view keeps what it shows"
shown.release()
view.release()
deadline = time.monotonic() + 30
while is_mapped() and time.monotonic() < deadline:
    time.sleep(0.005)
tell(is_mapped())
hear()
""")
        assert idle.hear() is True
        node.kill()
        assert idle.ask("the node is dead") is False


def test_a_forked_child_of_a_server_ends_and_takes_nothing_with_it() -> None:
    with Bed() as bed:
        parent = bed.actor(
            "server = native.NodeServer(path=PATH, name='n', site='', secret=SECRET, segment_bytes=1 << 20,\n"
            "                           arena_bytes=1 << 20, tenants=[], directories=[], limits={})\n"
            "server.start()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    del server\n"
            "    sys.exit(7)\n"
            "tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "hear()\n"
        )
        assert parent.hear() == 7
        assert bed.client().ping()


def test_a_stopped_node_costs_one_timeout_and_then_nothing_until_it_answers() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("key", MIB)
        put(client, {"key": value}, keep_at_most_ms=UNLISTED_MS)
        node.send(signal.SIGSTOP)
        assert get(client, "key", MIB, timeout_ms=50)[:2] == (Status.MISS, Reason.TIMED_OUT)
        assert get(client, "key", MIB, timeout_ms=60_000)[:2] == (Status.MISS, Reason.UNAVAILABLE)
        assert client.match(1, [1], [(0, 1, 0)], timeout_ms=60_000).reachable is False
        node.send(signal.SIGCONT)
        wait_until(lambda: get(client, "key", MIB) == (Status.HIT, Reason.NONE, value))
        # What the late answers gave was given back.
        wait_until(lambda: node.status()["table"]["hold_count"] == 0)
        assert client.info["reconnect_count"] == 0


def test_a_node_that_was_silent_until_nothing_more_could_be_asked_is_heard_again() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        assert put(client, {"key": b"value"}) == [Status.STORED]
        many = [b"%06d" % number + bytes(1000) for number in range(4096)]  # one question of 4 MiB
        node.send(signal.SIGSTOP)
        reasons = set()
        for _ in range(4):  # more than a connection keeps unsent
            reasons.add(client.exists(many, timeout_ms=20).reasons[0])
            assert client.connect(20)[0] == Reason.NONE  # closes the breaker: the next question is asked at once
        assert reasons == {Reason.TIMED_OUT}
        node.send(signal.SIGCONT)
        wait_until(lambda: client.exists([b"key"], timeout_ms=1000).statuses == [Status.HIT])
        assert client.info["reconnect_count"] == 0


def test_connecting_to_nobody_or_to_somebody_stopped_fails_in_bounded_time() -> None:
    with Bed() as bed:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(bed.node_path)
        listener.listen(1)
        waiting = bed.actor("client = native.NodeClient(PATH, secret=SECRET)\ntell(client.connect(200)[0])\nhear()\n")
        assert waiting.hear() == Reason.TIMED_OUT
        listener.close()
        assert (
            bed.actor("client = native.NodeClient(PATH, secret=SECRET)\ntell(client.connect(200)[0])\n").hear()
            == Reason.UNAVAILABLE
        )


def test_a_second_node_on_the_same_path_is_refused_and_a_stale_file_replaced() -> None:
    with Bed() as bed:
        node = bed.node()
        second = bed.actor(
            "server = native.NodeServer(path=PATH, name='n', site='', secret=SECRET, segment_bytes=1 << 20,\n"
            "                           arena_bytes=1 << 20, tenants=[], directories=[], limits={})\n"
            "try:\n"
            "    server.start()\n"
            "except OSError as error:\n"
            "    tell(str(error))\n"
        )
        text = second.hear()
        assert bed.node_path in text
        assert "taken" in text
        assert bed.client().ping()
        node.kill()
        bed.node()
        assert bed.client().ping()


def test_a_folder_that_somebody_keeps_locked_is_not_waited_for_without_bound() -> None:
    with Bed() as bed:
        folder = os.open(bed.folder.name, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        starting = bed.actor(
            "server = native.NodeServer(path=PATH, name='n', site='', secret=SECRET, segment_bytes=1 << 20,\n"
            "                           arena_bytes=1 << 20, tenants=[], directories=[], limits={})\n"
            "try:\n"
            "    server.start()\n"
            "except OSError as error:\n"
            "    tell(str(error))\n"
        )
        text = starting.hear()
        os.close(folder)
        assert "lock" in text
        assert bed.folder.name in text
        bed.node()
