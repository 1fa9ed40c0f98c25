"""A rail spoken by hand: it can stop in the middle of a slice, and name any token, offset and length."""

from __future__ import annotations

import struct
from typing import NamedTuple

from raw_peer import RAIL, RawPeer

from moonpool import _native

WRITE, READ, MESSAGE, PROBE, CANCEL = range(1, 6)
DATA, DONE, FAILED, DROPPED = range(1, 5)
_REQUEST = struct.Struct("<BBHI16sQQI")
_REPLY = struct.Struct("<BBHIQI")


class Answer(NamedTuple):
    kind: int
    reason: int
    payload: bytes
    checksum: int


def request(verb: int, token: bytes, offset: int, length: int, *, number: int = 1) -> bytes:
    head = _REQUEST.pack(verb, 0, 0, number, token, offset, length, 0)
    return head[:44] + struct.pack("<I", _native.crc32c(head[:44]))


class RawRail:
    """One proven rail."""

    def __init__(self, address: str, secret: bytes, *, tenant: str = "default") -> None:
        self._peer = RawPeer(address, secret, role=RAIL, tenant=tenant)
        self.socket = self._peer.socket

    def read(self, token: bytes, offset: int, length: int) -> Answer:
        self.socket.sendall(request(READ, token, offset, length))
        return self.answer()

    def write(self, token: bytes, offset: int, content: bytes) -> Answer:
        self.socket.sendall(request(WRITE, token, offset, len(content)) + content)
        return self.answer()

    def answer(self) -> Answer:
        head = self._peer.take(_REPLY.size + 4)
        kind, reason, _, _, length, checksum = _REPLY.unpack(head[: _REPLY.size])
        return Answer(kind, reason, self._peer.take(length) if kind == DATA else b"", checksum)

    def close(self) -> None:
        self.socket.close()
