"""Callers' values as lists of (address, length): buffers, tensors, DLPack, piece lists and address arrays."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moonpool.errors import UsageError
from moonpool.pool.regions import Regions, check_range
from moonpool.transfer.memory import span_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# One value: anything with the buffer protocol, DLPack or data_ptr; or a list of those and of (address, length).
Value = Any


@dataclass(frozen=True, slots=True)
class Pieces:
    """A whole batch as parallel arrays of 8-byte numbers (or lists of int): the fast form.

    Value i is the concatenation of its ``piece_counts[i]`` pieces (None: one piece each). The addresses must lie
    in memory given to `Pool.register`.
    """

    addresses: Any
    lengths: Any
    piece_counts: Any | None = None


@dataclass(slots=True)
class Batch:
    """What the native client takes. `owners` keeps the memory alive until the call is over."""

    addresses: list[int] | array[int] = field(default_factory=list)
    lengths: list[int] | array[int] = field(default_factory=list)
    piece_counts: list[int] | array[int] | None = None
    owners: list[object] = field(default_factory=list)

    def arrays(self) -> tuple[array[int], array[int], array[int] | None]:
        """The numbers as the native client reads them fastest."""
        counts = None if self.piece_counts is None else _array(self.piece_counts)
        return _array(self.addresses), _array(self.lengths), counts


def batch_of(values: Sequence[Value], regions: Regions, *, writable: bool) -> Batch:
    """One batch of values. UsageError names the value that cannot be used; nothing has been touched then."""
    batch = Batch()
    counts = [_append(batch, value, regions, writable=writable) for value in values]
    if any(count != 1 for count in counts):
        batch.piece_counts = counts
    return batch


def batch_of_pieces(pieces: Pieces, key_count: int, regions: Regions) -> Batch:
    """A batch of address arrays, checked: as many values as keys, every range inside a registered one."""
    batch = Batch(numbers(pieces.addresses, "addresses"), numbers(pieces.lengths, "lengths"))
    if len(batch.addresses) != len(batch.lengths):
        raise UsageError(f"{len(batch.addresses)} addresses but {len(batch.lengths)} lengths; give one length each")
    value_count, piece_total = len(batch.addresses), len(batch.addresses)
    if pieces.piece_counts is not None:
        batch.piece_counts = numbers(pieces.piece_counts, "piece_counts")
        value_count, piece_total = len(batch.piece_counts), sum(batch.piece_counts)
    if value_count != key_count:
        raise UsageError(f"{key_count} keys but pieces for {value_count} values; give one value a key")
    if piece_total != len(batch.addresses):
        raise UsageError(f"piece_counts add up to {piece_total} but there are {len(batch.addresses)} addresses")
    if regions.have(_array(batch.addresses), _array(batch.lengths)):
        return batch
    regions.require(batch.addresses, batch.lengths)
    if not all(batch.lengths):
        raise UsageError("a piece is empty; leave it away (a value has at least one byte)")
    return batch


def numbers(values: Any, what: str) -> array[int]:
    """Non-negative 64-bit ints from a list or from a buffer of 8-byte integers; a copy, so that it stays as checked."""
    try:
        if isinstance(values, list | tuple | range):
            return array("Q", values)
        view = memoryview(values)
        if view.itemsize != 8 or view.format not in ("q", "Q", "l", "L"):
            raise UsageError(f"{what} is an array of {view.itemsize}-byte {view.format!r}; give 64-bit integers")
        return array("Q", view.cast("B").tobytes())
    except OverflowError as error:
        raise UsageError(f"{what} has a number that is negative or over 64 bits", kind="bad_address") from error
    except (TypeError, BufferError) as error:
        raise UsageError(f"{what} is a list of int or a contiguous array of 64-bit integers: {error}") from error


def _array(values: list[int] | array[int]) -> array[int]:
    return values if isinstance(values, array) else array("Q", values)


def _append(batch: Batch, value: Value, regions: Regions, *, writable: bool) -> int:
    """Add the pieces of one value; how many there were."""
    pieces: Iterable[Value] = value if isinstance(value, list) else [value]
    count = 0
    for piece in pieces:
        if isinstance(piece, tuple):
            address, length = _address_pair(piece)
            regions.require([address], [length])
            owner: object = None
        else:
            address, length, owner = span_of(piece, writable=writable)
        if not length:  # adds nothing to the value, and has no address worth the name
            continue
        batch.addresses.append(address)
        batch.lengths.append(length)
        batch.owners.append(owner)
        count += 1
    if not count:
        raise UsageError("a value is empty; a value has at least one byte")
    return count


def _address_pair(piece: tuple[Any, ...]) -> tuple[int, int]:
    if len(piece) != 2 or not all(isinstance(number, int) for number in piece):
        raise UsageError(f"a piece is a buffer or an (address, length) pair of int, not {piece!r}")
    check_range(*piece)
    return piece[0], piece[1]
