"""cases/faults.md 2 (unix socket) and 29 on real processes: strangers, and members that are too curious."""

from __future__ import annotations

import mmap
import os
import pickle
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from raw_peer import Closed, RawPeer, frame, hello

from moonpool import Pool, Reason, Status, Tags, _native
from moonpool.errors import AccessDenied, PeerUnavailable
from moonpool.testing.cluster import Cluster, value_of, wait_until

MB = 1_000_000
MIB = 1024 * 1024


def figures(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = pool.stat()["table"]
    return found


# 2. Hostile peer ----------------------------------------------------------------------------------------------


def hostile_openings() -> dict[str, bytes]:
    """What a stranger may say first."""
    header = frame(raw_peer.HELLO, hello())
    chance = random.Random(2)
    return {
        "nothing that is a frame": b"GET / HTTP/1.1\r\nHost: moonpool\r\n\r\n",
        "a pickle": pickle.dumps({"module": "os", "call": "system"}),
        "noise": chance.randbytes(4096),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "a length of 4 GiB": struct.pack("<IHBBI", 0xFFFFFFFF, 1, 1, 0, 1)
        + struct.pack("<I", _native.crc32c(struct.pack("<IHBBI", 0xFFFFFFFF, 1, 1, 0, 1))),
        "a wrong header check": header[:12] + b"\0\0\0\0" + header[16:],
        "an unknown frame version": frame(raw_peer.HELLO, hello(), version=99),
        "an unknown message": frame(250, b"abc"),
        "a verb before the handshake": frame(raw_peer.STAT),
        "a reply to nothing": frame(raw_peer.HELLO | raw_peer.REPLY, b"abc"),
        "a hello with another magic": frame(raw_peer.HELLO, b"\0" * 8 + hello()[8:]),
        "a hello cut short": frame(raw_peer.HELLO, hello()[:20]),
        "a hello with more behind it": frame(raw_peer.HELLO, hello() + b"more"),
        "a name longer than the message": frame(raw_peer.HELLO, hello()[:-4] + b"\xff\xff"),
    }


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the other side closes; fails when it does not within 10 s."""
    connection.settimeout(10)
    received = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not chunk:
            return received
        received += chunk


def opened(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


@pytest.mark.parametrize("kind", ["node", "directory"])
@pytest.mark.parametrize("opening", hostile_openings().values(), ids=hostile_openings().keys())
def test_a_stranger_is_cut_off_and_the_others_are_served(
    standing: Cluster, pool: Pool, kind: str, opening: bytes
) -> None:
    path = str(standing.folder / f"{kind}.sock")
    with opened(path) as stranger:
        stranger.sendall(opening)
        answer = read_to_end(stranger)
    assert len(answer) < 1024, "an error at most"
    assert pool.put({"k": b"v"})["k"]
    assert pool.locate(["k"])[0]


@pytest.mark.parametrize("kind", ["node", "directory"])
def test_half_a_header_then_silence_times_out(folder: Path, kind: str) -> None:
    settings = {f"{name}.limits.handshake_ms": 200 for name in ("node", "directory")}
    with Cluster(folder, settings=settings) as cluster, cluster.connect() as pool:
        with opened(str(folder / f"{kind}.sock")) as silent, opened(str(folder / f"{kind}.sock")) as halfway:
            halfway.sendall(frame(raw_peer.HELLO, hello())[:9])
            for stranger in (silent, halfway):
                assert len(read_to_end(stranger)) < 1024
        assert pool.put({"k": b"v"})["k"]


def test_a_member_that_stops_in_the_middle_of_a_message_times_out(folder: Path) -> None:
    with Cluster(folder, settings={"node.limits.frame_ms": 200}) as cluster, cluster.connect() as pool:
        with RawPeer(cluster.socket_path, cluster.secret) as peer:
            peer.socket.sendall(frame(raw_peer.EXISTS, bytes(64))[:40])
            read_to_end(peer.socket)
        assert pool.put({"k": b"v"})["k"]


def test_an_unknown_wire_version_is_refused_naming_both(standing: Cluster) -> None:
    with opened(standing.socket_path) as stranger:
        stranger.sendall(frame(raw_peer.HELLO, hello(version_min=200, version_max=201)))
        answer = read_to_end(stranger)
    assert raw_peer.HEADER.unpack(answer[:12])[1] == raw_peer.ERROR
    text = answer[16:].decode("latin-1")
    assert "200" in text or "201" in text, text


def at(peer: RawPeer, position: int, tail: bytes) -> bytes:
    """A write or read request on a reservation or hold of nobody, at some position."""
    return struct.pack("<QQQ", peer.incarnation, 12345, position) + tail


def reserve_of(peer: RawPeer, length: int) -> bytes:
    item = peer.reference(b"late") + struct.pack("<QQ?QHBII", peer.tenant_id, length, False, 0, 1, 0, 0, 0)
    return struct.pack("<QII", peer.incarnation, 0, 1) + item


def of_keys(incarnation: int, count: int, *references: bytes) -> bytes:
    return struct.pack("<QI", incarnation, count) + b"".join(references)


EVIL = struct.pack("<I", 4) + b"evil"

# What a member that knows the secret may say, and may not do: message, payload.
HOSTILE_REQUESTS: dict[str, tuple[int, Callable[[RawPeer], bytes]]] = {
    "write to a reservation of nobody": (raw_peer.WRITE, lambda peer: at(peer, 0, EVIL)),
    "write far outside": (raw_peer.WRITE, lambda peer: at(peer, 2**63, EVIL)),
    "a write whose end overflows": (raw_peer.WRITE, lambda peer: at(peer, 2**64 - 2, EVIL)),
    "read of a hold of nobody": (raw_peer.READ, lambda peer: at(peer, 0, struct.pack("<I", 100))),
    "a read whose end overflows": (raw_peer.READ, lambda peer: at(peer, 2**64 - 2, struct.pack("<I", 100))),
    "an arena that is not there": (raw_peer.ARENA, lambda _: struct.pack("<I?", 99999, True)),
    "a count of items that is not there": (raw_peer.EXISTS, lambda peer: of_keys(peer.incarnation, 2**31)),
    "a value of 2^64 - 1 bytes": (raw_peer.RESERVE, lambda peer: reserve_of(peer, 2**64 - 1)),
    "a value of 1 TiB": (raw_peer.RESERVE, lambda peer: reserve_of(peer, 2**40)),
    "a boolean of 7": (raw_peer.HOLD, lambda peer: struct.pack("<QBII", peer.incarnation, 7, 0, 0)),
    "events from a client": (raw_peer.EVENTS, lambda peer: struct.pack("<QQBI", peer.incarnation, 0, 0, 0)),
    "a description of 1 MiB": (raw_peer.DESCRIBE, lambda _: struct.pack("<I", MIB) + b" " * MIB),
    "a description that is no text": (raw_peer.DESCRIBE, lambda _: struct.pack("<I", 4) + b"\xff\xfe\x00\x01"),
    "remove at another incarnation": (
        raw_peer.REMOVE,
        lambda peer: of_keys(peer.incarnation ^ 1, 1, peer.reference(b"victim")),
    ),
}


@pytest.mark.parametrize("name", HOSTILE_REQUESTS)
def test_a_member_that_asks_for_what_it_may_not_changes_nothing(standing: Cluster, pool: Pool, name: str) -> None:
    victim = value_of("victim", 100_000)
    assert pool.put({"victim": victim})["victim"]
    before = figures(pool)["used_bytes"]
    message, payload = HOSTILE_REQUESTS[name]
    with RawPeer(standing.socket_path, standing.secret) as peer:
        try:
            kind, answer = peer.ask(message, payload(peer))
        except (Closed, ConnectionResetError, BrokenPipeError):
            kind, answer = raw_peer.ERROR, b""
    if kind != raw_peer.ERROR:
        counted = message in (raw_peer.WRITE, raw_peer.RESERVE, raw_peer.REMOVE)
        status = answer[4] if counted else answer[0]
        assert status in (Status.REFUSED, Status.MISS, Status.NO_ROOM), (kind, answer[:16])
    assert pool.get_bytes(["victim"]) == [victim]
    wait_until(lambda: figures(pool)["used_bytes"] == before, "nothing to be left of it")


def test_a_crowd_of_strangers_does_not_shut_the_members_out(folder: Path) -> None:
    settings = {"node.limits.connection_count": 64, "node.limits.handshake_ms": 300}
    with Cluster(folder, settings=settings) as cluster:
        crowd = [opened(cluster.socket_path) for _ in range(60)]
        try:
            with cluster.connect(lazy=True) as pool:
                wait_until(lambda: pool.put({"k": b"v"})["k"], "a member to be served", timeout_s=10)
        finally:
            for stranger in crowd:
                stranger.close()


# 29. The curious tenant ---------------------------------------------------------------------------------------


@pytest.fixture
def shared(folder: Path) -> Iterator[tuple[Cluster, Pool]]:
    """Tenants a (shared memory) and b on one node, with an object of a."""
    settings = {"node.tenants": "a, b", "client.tenant": "a"}
    with Cluster(folder, settings=settings) as cluster, cluster.connect() as owner:
        assert owner.put({"secret": value_of("secret", MB)}, tags=Tags(77, [1], [0]))["secret"]
        yield cluster, owner


def test_another_tenant_finds_and_changes_nothing_by_any_verb(shared: tuple[Cluster, Pool]) -> None:
    cluster, owner = shared
    with cluster.connect(tenant="b") as curious:
        assert not curious.info["shared_memory"]
        assert curious.get_bytes(["secret"]) == [None]
        target = bytearray(b"?" * MB)
        assert not curious.get_into(["secret"], [target])[0]
        assert target == b"?" * MB
        for verb in (curious.exists, curious.pin, curious.unpin, curious.remove):
            assert not verb(["secret"])[0]
        assert curious.why(["secret"])[0].reason == Reason.NEVER_STORED
        assert list(curious.list()) == []
        assert curious.match(77, [1], timeout_ms=1000).fetchable_block_count == 0
        assert curious.locate(["secret"]) == [[]]
        assert curious.put({"secret": b"mine"})["secret"].status == Status.STORED, "its own key of that name"
        assert curious.clear(77) == 0
        for forbidden in (lambda: curious.clear(0), curious.stat):
            with pytest.raises(PeerUnavailable, match="tenant 'b'"):
                forbidden()
        assert curious.get_bytes(["secret"]) == [b"mine"]
    assert owner.get_bytes(["secret"]) == [value_of("secret", MB)]
    assert owner.match(77, [1], timeout_ms=1000).fetchable_block_count == 1


def test_another_tenant_gets_no_arena_and_no_byte_by_guessing(shared: tuple[Cluster, Pool]) -> None:
    cluster, owner = shared
    result = owner.exists(["secret"])[0]
    for writable in (False, True):
        with RawPeer(cluster.socket_path, cluster.secret, tenant="b") as curious, pytest.raises(Closed):
            curious.arena(0, writable=writable)
        assert not curious.shared_memory
        assert curious.arena_descriptors == []
    with owner.get(["secret"]) as views, RawPeer(cluster.socket_path, cluster.secret, tenant="b") as curious:
        assert views[0] is not None
        digest_of_a = _native.key_digest(cluster.secret, RawPeerTenant.of(cluster, "a"), b"secret")
        payload = struct.pack("<Q?II", curious.incarnation, True, 0, 1) + digest_of_a + raw_peer.text("secret")
        kind, answer = curious.ask(raw_peer.HOLD, payload)
        assert kind == raw_peer.ERROR or answer[4] == Status.MISS
        for generation in {*range(1, 40), result.generation, views.results[0].generation}:
            kind, answer = curious.ask(raw_peer.READ, struct.pack("<QQQI", curious.incarnation, generation, 0, 64))
            assert answer[0] in (Status.REFUSED, Status.MISS), generation
            assert value_of("secret", 64) not in answer
            curious.send(raw_peer.RELEASE, struct.pack("<QIQ", curious.incarnation, 1, generation))
        assert bytes(views[0]) == value_of("secret", MB)
        assert figures(owner)["hold_count"] == 1, "nobody else may let go"
    counters = owner.stat()["counters"]
    assert counters["denied_verb"] >= 2
    assert owner.get_bytes(["secret"]) == [value_of("secret", MB)]


class RawPeerTenant:
    """The number of a tenant, as that tenant itself is told it."""

    @staticmethod
    def of(cluster: Cluster, tenant: str) -> int:
        with RawPeer(cluster.socket_path, cluster.secret, tenant=tenant) as peer:
            return int(peer.tenant_id)


def test_a_tenant_that_is_not_named_and_a_stranger_are_refused_with_a_count(shared: tuple[Cluster, Pool]) -> None:
    cluster, owner = shared
    with pytest.raises(AccessDenied):
        cluster.connect(tenant="c")
    with pytest.raises(Closed):
        RawPeer(cluster.socket_path, b"0123456789abcdef")
    counters = owner.stat()["counters"]
    assert counters["refused_tenant"] >= 1
    assert counters["refused_secret"] >= 1


def test_memory_that_readers_get_cannot_be_written(standing: Cluster, pool: Pool) -> None:
    assert pool.put({"k": value_of("k", MB)})["k"]
    with pool.get(["k"]) as views, pytest.raises(TypeError):
        views[0][0] = 1  # type: ignore[index]
    with RawPeer(standing.socket_path, standing.secret) as peer:
        status, descriptor = peer.arena(peer.hold([b"k"])[0].arena, writable=False)
        assert status == Status.DONE
        try:
            with pytest.raises(PermissionError):
                mmap.mmap(descriptor, MIB, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            with pytest.raises(OSError):
                os.ftruncate(descriptor, 0)
            with pytest.raises(OSError):
                os.write(descriptor, b"evil")
        finally:
            os.close(descriptor)
    assert pool.get_bytes(["k"]) == [value_of("k", MB)]
