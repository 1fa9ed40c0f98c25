"""Callers' values as lists of (address, length): buffers, tensors, DLPack, piece lists and address arrays."""

from __future__ import annotations

import ctypes
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moonpool import _native
from moonpool.errors import UsageError
from moonpool.pool.regions import Regions, check_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# One value: anything with the buffer protocol, DLPack or data_ptr; or a list of those and of (address, length).
Value = Any

_DLPACK_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: a CPU may read these


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


def span_of(value: Value, *, writable: bool) -> tuple[int, int, object]:
    """(address, bytes, what keeps it alive) of one contiguous host buffer, tensor or DLPack object."""
    if isinstance(value, str):
        raise UsageError("a value is bytes, not str; encode it, for example with .encode()")
    if hasattr(value, "data_ptr"):
        return _tensor_span(value)
    try:
        view = memoryview(value)
    except (TypeError, BufferError, ValueError) as error:
        if hasattr(value, "__dlpack__"):
            return _dlpack_span(value, writable)
        raise UsageError(
            f"cannot take the bytes of a {type(value).__name__}; give a buffer, a tensor, DLPack, or (address, length)"
        ) from error
    if not view.c_contiguous:
        raise UsageError(f"{type(value).__name__} is not contiguous; copy it, or pass its pieces as a list")
    if writable and view.readonly:
        raise UsageError(f"cannot write into a read-only {type(value).__name__}; give a bytearray or a writable array")
    address, length = _native.address_of(view, writable)
    return address, length, view


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


def _tensor_span(tensor: Any) -> tuple[int, int, object]:
    """Of a torch tensor, by duck typing, so that torch is never imported."""
    device = str(getattr(tensor, "device", "cpu"))
    if not device.startswith("cpu"):
        raise UsageError(
            f"the tensor lies on {device}; copy it to host memory first, for example with .cpu() "
            "(engines move device blocks through moonpool.connectors)"
        )
    if not tensor.is_contiguous():
        raise UsageError("the tensor is not contiguous; pass .contiguous(), or its pieces as a list")
    length = int(tensor.nbytes)
    return int(tensor.data_ptr()), length, tensor


class _DLTensor(ctypes.Structure):
    """The head of DLManagedTensor (dlpack.h, version 0), as far as an address needs it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _dlpack_span(value: Any, writable: bool) -> tuple[int, int, object]:
    """Of an object that speaks only DLPack. The capsule is kept, unconsumed: it keeps the memory alive."""
    device_type, _ = value.__dlpack_device__()
    if int(device_type) not in _DLPACK_HOST_DEVICES:
        raise UsageError(f"the {type(value).__name__} lies on DLPack device {int(device_type)}; copy it to the host")
    if writable:
        raise UsageError(f"DLPack does not say whether a {type(value).__name__} may be written; give a buffer instead")
    capsule = value.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = ctypes.cast(pointer_of(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    item_bytes = (tensor.bits * tensor.lanes + 7) // 8
    count = 1
    for axis in reversed(range(tensor.ndim)):
        if tensor.strides and shape[axis] > 1 and tensor.strides[axis] != count:
            raise UsageError(f"the {type(value).__name__} is not contiguous; copy it first")
        count *= shape[axis]
    return (tensor.data or 0) + tensor.byte_offset, count * item_bytes, capsule
