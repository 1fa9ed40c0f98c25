"""Registered memory: ours, and what a peer says of its own."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Self

from moonpool.errors import UsageError

_MAGIC = b"MPRG"
_VERSION = 1
_HEAD = struct.Struct("<4sBBHQ16s")  # magic, version, flags, bytes of location, bytes of the region, token
_WRITABLE = 1
_LOCATION_BYTES_MAX = 255
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class RemoteRegion:
    """What a peer needs to name a region: whoever has the token may read it, and write where it is writable.

    `to_bytes` is the form to send: by a message, a file, an environment. It has a version.
    """

    token: bytes = field(repr=False)
    byte_count: int
    writable: bool
    location: str = "cpu:0"

    def at(self, offset: Any) -> RemoteSlice:
        """The part that begins at offset bytes; an array or list of offsets names as many parts."""
        return RemoteSlice(self, offset)

    def to_bytes(self) -> bytes:
        """The descriptor: what `from_bytes` reads, here or elsewhere."""
        location = self.location.encode()
        flags = _WRITABLE if self.writable else 0
        return _HEAD.pack(_MAGIC, _VERSION, flags, len(location), self.byte_count, self.token) + location

    @classmethod
    def from_bytes(cls, descriptor: bytes) -> Self:
        """UsageError unless it is exactly one descriptor of a version that this release reads."""
        if len(descriptor) < _HEAD.size or descriptor[:4] != _MAGIC:
            raise UsageError("these bytes are no descriptor of a region")
        _, version, flags, location_bytes, byte_count, token = _HEAD.unpack_from(descriptor)
        if version != _VERSION:
            raise UsageError(f"the descriptor has version {version}; this release reads {_VERSION}")
        location = descriptor[_HEAD.size :]
        if len(location) != location_bytes or location_bytes > _LOCATION_BYTES_MAX or flags & ~_WRITABLE:
            raise UsageError("the descriptor of a region is damaged")
        try:
            return cls(token, byte_count, bool(flags & _WRITABLE), location.decode())
        except UnicodeDecodeError as error:
            raise UsageError("the descriptor of a region is damaged") from error


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    """A place, or several, in a remote region."""

    region: RemoteRegion
    offset: Any


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Memory of this process that was registered with `TransferEngine.register` or `TransferEngine.allocate`."""

    address: int
    remote: RemoteRegion
    owner: Any = field(repr=False, default=None)  # keeps the memory alive

    @property
    def byte_count(self) -> int:
        """Its length."""
        return self.remote.byte_count

    @property
    def writable(self) -> bool:
        """Whether peers may write into it."""
        return self.remote.writable

    @property
    def location(self) -> str:
        """Where it lies, such as ``cpu:0``."""
        return self.remote.location

    @property
    def descriptor(self) -> bytes:
        """What a peer needs to reach it: `RemoteRegion.from_bytes` on its side. Whoever has it has access."""
        return self.remote.to_bytes()

    @property
    def memory(self) -> memoryview:
        """The bytes themselves, where the owner is a buffer."""
        return memoryview(self.owner)

    def at(self, offset: int) -> int:
        """The address of the byte at offset, for reads and writes of a part."""
        if not 0 <= offset <= self.byte_count:
            raise UsageError(f"offset {offset} lies outside the region of {self.byte_count} bytes", kind="bad_address")
        return self.address + offset


def require_location(location: str) -> str:
    """Of the form ``cpu:0``; UsageError for anything else, or for memory that this engine cannot reach."""
    kind, _, index = location.partition(":")
    if not kind.isalpha() or (index and not index.isdigit()) or len(location) > _LOCATION_BYTES_MAX:
        raise UsageError(f"location {location!r} is not of the form 'cpu:0'")
    if kind != "cpu":
        raise UsageError(
            f"location {location!r}: no transport that is installed here reaches device memory; register host memory"
        )
    return location
