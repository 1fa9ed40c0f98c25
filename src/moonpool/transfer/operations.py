"""Reads and writes as the native engine takes them: parallel arrays of offsets, addresses and lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from moonpool.errors import UsageError
from moonpool.transfer.memory import span_of
from moonpool.transfer.regions import Region, RemoteRegion, RemoteSlice

_U64_END = 1 << 64


@dataclass(frozen=True, slots=True)
class Read:
    """From the peer's region into our memory.

    local: a `Region`, a buffer or tensor that lies in one, or an address in one (`Region.at`). remote: a
    `RemoteRegion`, or a place in it (`RemoteRegion.at`). length: bytes; None: those of local. For many operations at
    once give arrays (or lists) of addresses, offsets and lengths; a single length stands for all.
    """

    local: Any
    remote: RemoteRegion | RemoteSlice
    length: Any = None


@dataclass(frozen=True, slots=True)
class Write:
    """From our memory into the peer's region; fields as in `Read`."""

    local: Any
    remote: RemoteRegion | RemoteSlice
    length: Any = None


class Item(NamedTuple):
    """What the native engine takes: one remote region, and as many operations as there are offsets."""

    write: bool
    token: bytes
    region_bytes: int
    writable: bool
    offsets: Any
    addresses: Any
    lengths: Any


def place_of(local: Any, length: Any, *, write: bool) -> tuple[int, int]:
    """(address, bytes) of one contiguous piece of our memory."""
    if isinstance(local, Region):
        address, byte_count = local.address, local.byte_count
    elif isinstance(local, int):
        if length is None:
            raise UsageError("an address needs a length beside it")
        return _number(local, "local"), _number(length, "length")
    else:
        address, byte_count, _ = span_of(local, writable=not write)
    if length is None:
        return address, byte_count
    wanted = _number(length, "length")
    if wanted > byte_count:
        raise UsageError(f"length {wanted} exceeds the {byte_count} bytes of the local memory", kind="bad_address")
    return address, wanted


def slice_of(remote: Any) -> RemoteSlice:
    """A remote region from its first byte, or the place that was given."""
    if isinstance(remote, RemoteSlice):
        if isinstance(remote.offset, int):
            _number(remote.offset, "offset")
        return remote
    if isinstance(remote, RemoteRegion):
        return RemoteSlice(remote, 0)
    raise UsageError(f"remote is a RemoteRegion, or RemoteRegion.at(offset), not {type(remote).__name__}")


def items_of(operations: Iterable[Read | Write]) -> tuple[list[Item], int]:
    """The native form, and how many operations it has. UsageError names what cannot be meant."""
    items = [_item(operation) for operation in operations]
    count = sum(len(item.offsets) for item in items)
    if not count:
        raise UsageError("a transfer has at least one operation")
    return items, count


def _item(operation: Read | Write) -> Item:
    if not isinstance(operation, Read | Write):
        raise UsageError(f"an operation is a Read or a Write, not {type(operation).__name__}")
    write = isinstance(operation, Write)
    place = slice_of(operation.remote)
    region = place.region
    if isinstance(place.offset, int):
        address, length = place_of(operation.local, operation.length, write=write)
        return Item(write, region.token, region.byte_count, region.writable, (place.offset,), (address,), (length,))
    offsets = _many(place.offset, "offset")
    addresses = _many(operation.local, "local")
    one = isinstance(operation.length, int)
    lengths = array("Q", [operation.length]) * len(offsets) if one else _many(operation.length, "length")
    if not len(offsets) == len(addresses) == len(lengths):
        raise UsageError(f"{len(offsets)} offsets, {len(addresses)} local addresses and {len(lengths)} lengths")
    return Item(write, region.token, region.byte_count, region.writable, offsets, addresses, lengths)


def _number(value: Any, what: str) -> int:
    if not isinstance(value, int) or not 0 <= value < _U64_END:
        raise UsageError(f"{what} {value!r} is not a number of bytes of 64 bits", kind="bad_address")
    return value


def _many(values: Any, what: str) -> Any:
    if isinstance(values, list | tuple | range):
        try:
            return array("Q", values)
        except (OverflowError, TypeError) as error:
            raise UsageError(f"{what}: numbers of 64 bits, none negative", kind="bad_address") from error
    if isinstance(values, int) or values is None:
        raise UsageError(f"{what}: several offsets need as many of it")
    return values
