"""Bytes that no client of ours would send: an error or a closed connection, a count, and a node that lives on."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import resource
import socket
import struct
from pathlib import Path
from typing import Self

import pytest
from native_actors import SECRET, Bed, Server, get, put, value_of, wait_until

from moonpool import _native as native
from moonpool.types import Status

pytestmark = pytest.mark.process

HELLO, AUTHENTICATE, RESERVE, COMMIT, WRITE, HOLD, READ, EXISTS, PING, ARENA = 1, 2, 3, 4, 7, 8, 10, 11, 22, 23
ERROR = 0x1FF
MAGIC = 0x314C4F4F504E4D4D
FRAME_PAYLOAD_BYTES_MAX = 4 << 20
LIMITS = {"handshake_ms": 300, "frame_ms": 300}


def frame(kind: int, payload: bytes, *, request: int = 1, version: int = 1, payload_bytes: int | None = None) -> bytes:
    head = struct.pack("<IHBBI", len(payload) if payload_bytes is None else payload_bytes, kind, version, 0, request)
    return head + struct.pack("<I", native.crc32c(head)) + payload


def text(value: bytes) -> bytes:
    return struct.pack("<H", len(value)) + value


def hello(nonce: bytes, *, versions: tuple[int, int] = (1, 1), role: int = 0) -> bytes:
    head = struct.pack("<QBBBIQ", MAGIC, *versions, role, os.getpid(), 0)
    return head + nonce + text(b"default") + text(b"raw") + text(b"")


class Raw:
    """A socket to the node that says what a test wants."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> tuple[int, bytes]:
        """Type and payload of the next frame; (0, b"") at the end of the connection."""
        head = self.take(16)
        if not head:
            return 0, b""
        length, kind = struct.unpack_from("<IH", head)
        return kind, self.take(length)

    def take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return b""
            data += more
        return data

    def greet(self) -> int:
        """Becomes a client; returns the node's incarnation."""
        nonce = os.urandom(16)
        self.send(frame(HELLO, hello(nonce)))
        kind, challenge = self.hear()
        assert kind == HELLO | 0x100
        proof = native.siphash128(SECRET, b"client" + challenge[-16:] + nonce + text(b"default") + text(b"raw"))
        self.send(frame(AUTHENTICATE, proof, request=2))
        kind, welcome = self.hear()
        assert kind == AUTHENTICATE | 0x100
        incarnation = struct.unpack_from("<Q", welcome, 16)[0]
        assert isinstance(incarnation, int)
        return incarnation


def ends(raw: Raw) -> None:
    """The node says an error or nothing, and then closes."""
    kind, _ = raw.hear()
    if kind:
        assert kind == ERROR
        assert raw.hear() == (0, b"")


def lives(bed: Bed, node: Server) -> None:
    client = bed.client()
    assert put(client, {"alive": value_of("alive", 5000)})[0] in (Status.STORED, Status.PRESENT)
    assert get(client, "alive", 5000)[2] == value_of("alive", 5000)
    node.check_integrity()


@pytest.mark.parametrize(
    ("data", "counter"),
    [
        (os.urandom(64), "malformed_header"),
        (b"GET / HTTP/1.1\r\nHost: node\r\n\r\n", "malformed_header"),
        (pickle.dumps({"verb": "get"}, protocol=2).ljust(64, b"."), "malformed_header"),
        (frame(HELLO, b"x" * 5000), "malformed_oversize"),
        (frame(HELLO, b"", payload_bytes=0xFFFFFFFF), "malformed_oversize"),
        (frame(HELLO, b"nonsense"), "refused_greeting"),
        (frame(RESERVE, b""), "refused_greeting"),
        (frame(HELLO, hello(bytes(16), versions=(7, 9))), "refused_version"),
        (frame(HELLO, hello(bytes(16))) + frame(AUTHENTICATE, bytes(16)), "refused_secret"),
        (b"\0\0\0", "refused_handshake_late"),
        (b"", "refused_handshake_late"),
    ],
)
def test_a_stranger_is_sent_away_and_counted(data: bytes, counter: str) -> None:
    with Bed() as bed:
        node = bed.node(limits=LIMITS)
        with Raw(bed.node_path) as raw:
            raw.send(data)
            kind, payload = raw.hear()
            if kind == HELLO | 0x100:  # the challenge, before the wrong proof
                kind, payload = raw.hear()
            assert kind == ERROR
            assert raw.hear() == (0, b"")
        assert node.counters()[counter] == 1
        if counter == "refused_version":
            assert b"1 to 1" in payload
            assert b"7 to 9" in payload
        lives(bed, node)


def test_a_client_that_goes_mad_is_closed_and_touches_nothing() -> None:
    with Bed() as bed:
        node = bed.node(limits=LIMITS)
        value = value_of("mine", 100_000)
        put(bed.client(), {"mine": value})
        for data, counter in (
            (frame(99, b""), "malformed_unknown_type"),
            (frame(RESERVE, b"\xff" * 40), "malformed_message"),
            (frame(HOLD, struct.pack("<QBII", 0, 0, 0, 0xFFFFFFFF)), "malformed_message"),
            (frame(24, b""), "denied_verb"),
            (frame(RESERVE, b"", version=9), "malformed_version"),
            (frame(RESERVE, b"", payload_bytes=1 << 30), "malformed_oversize"),
            (frame(RESERVE, b"half", payload_bytes=4000), "malformed_half_frame"),
            (frame(RESERVE, b"")[:7], "malformed_half_frame"),
        ):
            before = node.counters().get(counter, 0)
            with Raw(bed.node_path) as raw:
                raw.greet()
                raw.send(data)
                ends(raw)
            assert node.counters()[counter] == before + 1, counter
        assert get(bed.client(), "mine", 100_000)[2] == value
        lives(bed, node)


def test_offsets_lengths_and_generations_of_others_reach_nothing() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("mine", 100_000)
        address, length = native.address_of(value)
        generation = client.put([b"mine"], [address], [length]).generations[0]
        incarnation = client.info["incarnation"]
        asks = itertools.product((WRITE, READ), (generation, generation + 1, 0, 2**64 - 1), (0, 99_999, 2**64 - 1))
        for kind, number, offset in asks:
            with Raw(bed.node_path) as raw:
                assert raw.greet() == incarnation
                rest = struct.pack("<I", 8) + (b"A" * 8 if kind == WRITE else b"")
                raw.send(frame(kind, struct.pack("<QQQ", incarnation, number, offset) + rest))
                answer, payload = raw.hear()
                assert answer in (kind | 0x100, ERROR)  # an offset that overflows is no message at all
                if answer != ERROR:
                    outcome = payload[-2:] if kind == WRITE else payload[:2]
                    assert outcome[0] in (Status.REFUSED, Status.MISS)
        with Raw(bed.node_path) as raw:
            raw.greet()
            raw.send(frame(COMMIT, struct.pack("<QIQI", incarnation, 1, generation, 0)))
            assert raw.hear()[0] == COMMIT | 0x100
            raw.send(frame(COMMIT, struct.pack("<QIQI", incarnation + 1, 1, generation, 0)))
            assert raw.hear()[0] == COMMIT | 0x100
            raw.send(frame(ARENA, struct.pack("<IB", 4_000_000_000, 1)))
            assert raw.hear()[0] == ARENA | 0x100
        assert node.counters()["wrong_incarnation"] == 1
        assert get(client, "mine", 100_000)[2] == value
        lives(bed, node)


def test_too_many_connections_are_refused_and_the_first_ones_served() -> None:
    with Bed() as bed:
        node = bed.node(limits={"connection_count": 4, "handshake_ms": 60_000})
        client = bed.client()
        crowd = [Raw(bed.node_path) for _ in range(10)]
        wait_until(lambda: node.counters().get("refused_connection_count", 0) == 7)
        assert client.ping()
        late = native.NodeClient(bed.node_path, secret=SECRET)
        assert late.connect(5000)[0] != 0
        for raw in crowd:
            raw.socket.close()
        wait_until(lambda: late.connect(5000)[0] == 0)
        late.close()


def test_descriptors_that_nobody_asked_for_are_not_kept() -> None:
    with Bed() as bed:
        node = bed.node()
        open_files = Path(f"/proc/{node.process.pid}/fd")
        with Raw(bed.node_path) as raw:
            raw.greet()
            before = len(list(open_files.iterdir()))
            for _ in range(50):  # with whole frames, and with bytes of one
                socket.send_fds(raw.socket, [frame(PING, b"")], [raw.socket.fileno()] * 4)
                assert raw.hear()[0] == PING | 0x100
            for byte in frame(PING, b"")[:-1]:
                socket.send_fds(raw.socket, [bytes([byte])], [raw.socket.fileno()] * 4)
            lives(bed, node)
            assert len(list(open_files.iterdir())) <= before + 4  # those of `lives`
        lives(bed, node)


def test_messages_for_which_there_is_no_memory_end_their_connections_and_nothing_else() -> None:
    with Bed() as bed:
        node = bed.node()
        lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
        mapped = next(int(line.split()[1]) for line in lines if line.startswith("VmSize")) << 10
        crowd = [Raw(bed.node_path) for _ in range(64)]
        for raw in crowd:
            raw.greet()
        resource.prlimit(node.process.pid, resource.RLIMIT_AS, (mapped + (1 << 20), resource.RLIM_INFINITY))
        for raw in crowd:  # together four times what an allocator has in reserve
            with contextlib.suppress(ConnectionError):
                raw.send(frame(EXISTS, bytes(128 << 10), payload_bytes=FRAME_PAYLOAD_BYTES_MAX))
        wait_until(lambda: node.counters().get("refused_memory", 0) > 0)
        for raw in crowd:
            raw.socket.close()
        resource.prlimit(node.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        lives(bed, node)


def test_a_peer_that_never_reads_its_answers_is_not_buffered_without_bound() -> None:
    with Bed() as bed:
        node = bed.node(limits={"unsent_bytes": 1 << 20})
        client = bed.client()
        put(client, {f"key{index}": bytes(10) for index in range(1000)})
        with Raw(bed.node_path) as raw:
            raw.greet()
            raw.socket.setblocking(False)
            ask = frame(17, struct.pack("<QI", 0, 1000) + text(b""))
            sent = 0
            try:
                while sent < 10_000:  # each answer is a thousand times as long as its question
                    raw.socket.sendall(ask)
                    sent += 1
            except BlockingIOError:
                pass
            assert sent < 10_000
            assert client.ping()
            lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
            resident_kib = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            assert resident_kib < 200_000
        lives(bed, node)
