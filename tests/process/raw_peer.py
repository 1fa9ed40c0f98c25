"""A client that speaks the protocol by hand, so that it can stop anywhere and say anything.

It knows the secret: what it may not do, the node must forbid.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from array import array
from typing import Any, NamedTuple, Self

from moonpool import _native

HEADER = struct.Struct("<IHBBI")
HELLO_MAGIC = 0x314C4F4F504E4D4D
HELLO, AUTHENTICATE, RESERVE, COMMIT, ABORT, PUT_INLINE, WRITE, HOLD, RELEASE, READ, EXISTS, REMOVE = range(1, 13)
PIN, UNPIN, CLEAR, WHY, LIST, MATCH, LOCATE, DESCRIBE, STAT, PING, ARENA, EVENTS, GOODBYE = range(13, 26)
REPLY, ERROR = 0x100, 0x1FF
CLIENT, OWNER, RAIL = range(3)
TIMEOUT_S = 10.0


class Closed(Exception):
    """The other side has closed the connection."""


class Reserved(NamedTuple):
    status: int
    reason: int
    generation: int
    arena: int
    offset: int
    length: int


class Held(NamedTuple):
    status: int
    reason: int
    generation: int
    arena: int
    offset: int
    length: int
    checksum: int


def frame(message: int, payload: bytes = b"", *, request: int = 1, version: int = 1) -> bytes:
    head = HEADER.pack(len(payload), message, version, 0, request)
    return head + struct.pack("<I", _native.crc32c(head)) + payload


def text(value: bytes | str) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return struct.pack("<H", len(encoded)) + encoded


def hello(
    *, version_min: int = 1, version_max: int = 1, role: int = CLIENT, tenant: str = "default", name: str = "raw"
) -> bytes:
    nonce = b"n" * 16
    head = struct.pack("<QBBBIQ16s", HELLO_MAGIC, version_min, version_max, role, os.getpid(), 0, nonce)
    return head + text(tenant) + text(name) + text("")


def dial(address: str) -> socket.socket:
    """A connection to host:port or to the socket at a path; every wait on it ends after 10 s."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in address:
        return socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    connection.connect(address)
    return connection


class RawPeer:
    """One connection. Every wait ends after 10 s."""

    def __init__(
        self, path: str, secret: bytes, *, role: int = CLIENT, tenant: str = "default", name: str = "raw"
    ) -> None:
        self.secret = secret
        self.socket = dial(path)
        self.grants: list[bytes] = []
        self.arena_descriptors: list[int] = []
        self._received = b""
        try:
            self._shake_hands(role, tenant, name)
        except BaseException:
            self.socket.close()
            raise

    def _shake_hands(self, role: int, tenant: str, name: str) -> None:
        message, challenge = self.ask(HELLO, hello(role=role, tenant=tenant, name=name))
        if message == ERROR:
            raise Closed
        _, self.incarnation, server_nonce = struct.unpack("<BQ16s", challenge)
        proof = _native.siphash128(self.secret, b"client" + server_nonce + b"n" * 16 + text(tenant) + text(name))
        message, welcome = self.ask(AUTHENTICATE, proof)
        if message == ERROR:
            raise Closed
        _, _, self.tenant_id, self.connection, self.shared_memory = struct.unpack_from("<16sQQI?", welcome)

    def send(self, message: int, payload: bytes = b"") -> None:
        self.socket.sendall(frame(message, payload))

    def ask(self, message: int, payload: bytes = b"") -> tuple[int, bytes]:
        """(type, payload) of the answer; `Closed` when the connection ends instead."""
        self.send(message, payload)
        return self.receive()

    def receive(self) -> tuple[int, bytes]:
        head = self.take(16)
        length, message, *_ = HEADER.unpack(head[:12])
        return message, self.take(length)

    def reference(self, key: bytes) -> bytes:
        return _native.key_digest(self.secret, self.tenant_id, key) + text(key)

    def reserve(self, keys: list[bytes], length: int) -> list[Reserved]:
        payload = struct.pack("<QII", self.incarnation, 0, len(keys))
        for key in keys:
            payload += self.reference(key) + struct.pack("<QQ?QHBII", self.tenant_id, length, False, 0, 1, 0, 0, 0)
        return self._reserve_results(*self.ask(RESERVE, payload))

    def commit(self, items: list[tuple[int, int]]) -> list[Reserved]:
        payload = struct.pack("<QI", self.incarnation, len(items))
        payload += b"".join(struct.pack("<QI", *item) for item in items)
        return self._reserve_results(*self.ask(COMMIT, payload))

    def hold(self, keys: list[bytes], *, view: bool = True, deadline_ms: int = 0) -> list[Held]:
        payload = struct.pack("<Q?II", self.incarnation, view, deadline_ms, len(keys))
        message, answer = self.ask(HOLD, payload + b"".join(map(self.reference, keys)))
        assert message == HOLD | REPLY, message
        return [Held(*item) for item in self._items("<BBQIQQI", answer)]

    def keys(self, message: int, keys: list[bytes]) -> bytes:
        """The answer to exists, remove, pin, unpin or why."""
        payload = struct.pack("<QI", self.incarnation, len(keys)) + b"".join(map(self.reference, keys))
        return self.ask(message, payload)[1]

    def arena(self, index: int, *, writable: bool) -> tuple[int, int]:
        """(status, descriptor of the arena or -1); `Closed` when the node refuses even to talk about it."""
        self.send(ARENA, struct.pack("<I?", index, writable))
        message, answer = self.receive()
        if message == ERROR:
            raise Closed
        descriptor = self.arena_descriptors.pop() if self.arena_descriptors else -1
        return answer[0], descriptor

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reserve_results(self, message: int, answer: bytes) -> list[Reserved]:
        assert message & REPLY, message
        return [Reserved(*item[:6]) for item in self._items("<BBQIQQIQ", answer)]

    def _items(self, layout: str, answer: bytes) -> list[tuple[Any, ...]]:
        """The items of a reply; the tokens that come after them, one an item or none, stay in `grants`."""
        count, size = struct.unpack_from("<I", answer)[0], struct.calcsize(layout)
        end = 4 + count * size
        self.grants = [answer[at : at + 16] for at in range(end + 4, len(answer), 16)]
        return list(struct.iter_unpack(layout, answer[4:end]))

    def take(self, count: int) -> bytes:
        while len(self._received) < count:
            data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(16 * 4))
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptors = array("i")
                    descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
                    self.arena_descriptors.extend(descriptors)
            if not data:
                raise Closed
            self._received += data
        taken, self._received = self._received[:count], self._received[count:]
        return taken


def map_arena(descriptor: int, *, writable: bool) -> mmap.mmap:
    """The whole arena; closes the descriptor."""
    try:
        size = os.fstat(descriptor).st_size
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    finally:
        os.close(descriptor)
