"""Fault 2 on a transfer engine: whatever bytes come, an error or a closed connection, and no memory changed."""

from __future__ import annotations

import os
import pickle
import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Self

import pytest
from raw_peer import AUTHENTICATE, ERROR, HELLO, frame, hello, text
from transfer_processes import SECRET, Receiver

from moonpool import TransferEngine, _native
from moonpool.config import secret_key
from moonpool.types import Reason

REGION_BYTES = 1 << 20
SILENCE_MS = 400
REQUEST = struct.Struct("<BBHI16sQQI")
REPLY = struct.Struct("<BBHIQI")
WRITE, READ, MESSAGE, PROBE, CANCEL = range(1, 6)
DATA, DONE, FAILED, DROPPED = range(1, 5)
ROLE_RAIL, ROLE_CLIENT = 2, 0
SLICE_BYTES_MAX = 64 << 20
SEED = random.randrange(1 << 32)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver(REGION_BYTES, handshake_ms=SILENCE_MS, silence_ms=SILENCE_MS) as running:
        yield running


class Raw:
    """A TCP connection to the engine that says what a test wants."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self, count: int) -> bytes:
        """So many bytes, or fewer at the connection's end."""
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                break
            data += more
        return data

    def ended(self) -> bool:
        """Nothing more comes, but perhaps an error frame before."""
        while data := self.take(1 << 16):
            assert len(data) < 4096, "the engine answers something that it should not"
        return True

    def greet(self, *, role: int = ROLE_RAIL, group: int = 1) -> int:
        """As a rail of a client that knows the secret; its number."""
        greeting = bytearray(hello())
        struct.pack_into("<BIQ", greeting, 10, role, os.getpid(), group)
        self.send(frame(HELLO, bytes(greeting)))
        challenge = self.take(16 + 25)[16:]
        proof = b"client" + challenge[9:] + b"n" * 16 + text("default") + text("raw")
        self.send(frame(AUTHENTICATE, _native.siphash128(secret_key(SECRET), proof)))
        head = self.take(16)
        length, kind = struct.unpack_from("<IH", head)
        welcome = self.take(length)
        assert kind == AUTHENTICATE | 0x100, welcome
        (number,) = struct.unpack_from("<I", welcome, 32)
        assert isinstance(number, int)
        return number

    def reply(self) -> tuple[int, int, int, int]:
        """(answer, reason, number, length) of the next reply."""
        data = self.take(REPLY.size + 4)
        assert len(data) == REPLY.size + 4, "the rail has ended"
        answer, reason, _, number, length, _ = REPLY.unpack_from(data)
        assert struct.unpack_from("<I", data, REPLY.size)[0] == _native.crc32c(data[: REPLY.size])
        return answer, reason, number, length


def request(
    verb: int, token: bytes = bytes(16), offset: int = 0, length: int = 0, *, number: int = 7, flags: int = 0
) -> bytes:
    head = REQUEST.pack(verb, flags, 0, number, token, offset, length, 0)
    return head + struct.pack("<I", _native.crc32c(head))


def lives(receiver: Receiver, before: str) -> None:
    """Its memory is as it was, and honest peers are served."""
    assert receiver.ask("sum") == before
    with TransferEngine(secret=SECRET) as engine:
        peer = engine.connect(receiver.address)
        local = engine.allocate(64)
        assert peer.read(local, receiver.region.at(REGION_BYTES - 64))


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(64),
        b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n",
        pickle.dumps({"read": "everything"}, protocol=5) * 2,
        frame(HELLO, hello(version_min=9, version_max=12)),
        frame(HELLO, b"x" * 40),
        frame(AUTHENTICATE, bytes(16)),
        frame(HELLO, hello())[:20],  # half of it, and silence
        b"",
        request(WRITE, offset=0, length=4) + b"wxyz",  # before proving anything
    ],
    ids=["noise", "http", "pickle", "version", "no hello", "no greeting", "half", "silence", "no proof"],
)
def test_what_is_no_greeting_is_closed(receiver: Receiver, data: bytes) -> None:
    before = receiver.ask("sum")
    with Raw(receiver.address) as raw:
        raw.send(data)
        assert raw.ended()
    lives(receiver, before)


def test_a_wrong_proof_and_a_wrong_role_are_refused(receiver: Receiver) -> None:
    before = receiver.ask("sum")
    with Raw(receiver.address) as raw:
        raw.send(frame(HELLO, hello()))
        raw.take(16 + 25)
        raw.send(frame(AUTHENTICATE, bytes(16)))
        kind = struct.unpack_from("<IH", raw.take(16))[1]
        assert kind == ERROR
        assert raw.ended()
    with Raw(receiver.address) as raw, pytest.raises(AssertionError):
        raw.greet(role=ROLE_CLIENT)
    lives(receiver, before)


def test_slices_outside_their_region_are_refused_one_by_one(receiver: Receiver) -> None:
    before = receiver.ask("sum")
    token = receiver.region.token
    wrong = [
        (request(WRITE, token, REGION_BYTES, 4), 4, Reason.OUT_OF_RANGE),
        (request(WRITE, token, REGION_BYTES - 2, 4), 4, Reason.OUT_OF_RANGE),
        (request(WRITE, token, 2**64 - 2, 4), 4, Reason.OUT_OF_RANGE),
        (request(WRITE, bytes(16), 0, 4), 4, Reason.UNKNOWN_REGION),
        (request(WRITE, os.urandom(16), 0, 100_000), 100_000, Reason.UNKNOWN_REGION),
        (request(READ, token, REGION_BYTES, 1), 0, Reason.OUT_OF_RANGE),
        (request(READ, token, 2**64 - 1, 2), 0, Reason.OUT_OF_RANGE),
        (request(READ, os.urandom(16), 0, 1), 0, Reason.UNKNOWN_REGION),
    ]
    with Raw(receiver.address) as raw:
        raw.greet()
        for header, payload_bytes, reason in wrong:
            raw.send(header + b"\xff" * payload_bytes)
            answer, why, _, _ = raw.reply()
            assert (answer, why) == (FAILED, reason)
        raw.send(request(PROBE))
        assert raw.reply()[0] == DONE
        raw.send(request(READ, token, 0, 16))
        assert raw.reply()[0] == DATA
        assert len(raw.take(16)) == 16
    lives(receiver, before)


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(48),
        pickle.dumps(list(range(100)), protocol=5),
        request(9),
        request(0),
        request(WRITE, length=0),
        request(READ, length=SLICE_BYTES_MAX + 1),
        request(WRITE, length=2**64 - 1),
        request(MESSAGE, length=(64 << 10) + 1),
        request(PROBE, length=1),
        request(PROBE, flags=0x80),
        request(PROBE)[:-1] + b"\x00",
        request(PROBE)[:30],  # and silence
    ],
    ids=[
        "noise", "pickle", "verb", "no verb", "empty", "long", "overflow", "message", "probe", "flags", "check", "half",
    ],
)  # fmt: skip
def test_what_is_no_request_ends_the_rail(receiver: Receiver, data: bytes) -> None:
    before = receiver.ask("sum")
    with Raw(receiver.address) as raw:
        raw.greet()
        raw.send(data)
        assert raw.ended()
    lives(receiver, before)


def test_any_changed_byte_of_a_request_ends_the_rail(receiver: Receiver) -> None:
    print("seed", SEED)
    chooser = random.Random(SEED)
    before = receiver.ask("sum")
    for _ in range(40):
        changed = bytearray(request(WRITE, receiver.region.token, 0, 8))
        changed[chooser.randrange(len(changed))] ^= 1 << chooser.randrange(8)
        with Raw(receiver.address) as raw:
            raw.greet()
            raw.send(bytes(changed) + b"\xff" * 8)
            assert raw.ended()
    lives(receiver, before)


def test_a_peer_that_is_silent_inside_a_slice_does_not_keep_the_region() -> None:
    with (
        Receiver(REGION_BYTES, handshake_ms=SILENCE_MS, silence_ms=SILENCE_MS) as receiver,
        Raw(receiver.address) as raw,
    ):
        raw.greet()
        raw.send(request(WRITE, receiver.region.token, 0, 1 << 18) + b"\xff" * 1000)
        assert raw.ended()
        assert receiver.ask("unregister 20000") is True


def test_a_peer_that_takes_no_replies_is_closed_and_costs_no_memory(receiver: Receiver) -> None:
    before = receiver.ask("sum")
    with Raw(receiver.address) as raw:
        raw.greet()
        raw.socket.settimeout(0.05)
        asked = request(READ, receiver.region.token, 0, REGION_BYTES) * 64
        sent = 0
        try:
            while sent < 100_000 * len(asked):
                sent += raw.socket.send(asked)
        except (TimeoutError, OSError):
            pass  # its socket is full, or closed: it reads no more
        wait_for_rails(receiver, 0)
    assert sent < 100_000 * len(asked)
    lives(receiver, before)


def wait_for_rails(receiver: Receiver, count: int) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        if receiver.ask("status")["counters"]["rails"] == count:
            return
    raise AssertionError(f"there are not {count} rails in the end")


def test_a_client_cannot_drop_the_rail_of_another(receiver: Receiver) -> None:
    with Raw(receiver.address) as victim, Raw(receiver.address) as raw:
        number = victim.greet(group=17)
        raw.greet(group=18)
        raw.send(request(CANCEL, offset=number, number=3))
        assert raw.reply()[::2] == (DROPPED, 3)
        victim.send(request(PROBE))
        assert victim.reply()[0] == DONE
    with Raw(receiver.address) as lost, Raw(receiver.address) as raw:
        number = lost.greet(group=18)
        raw.greet(group=18)
        raw.send(request(CANCEL, offset=number, number=4))
        assert raw.reply()[::2] == (DROPPED, 4)
        assert lost.ended()
