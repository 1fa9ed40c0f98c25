"""Where the bytes of a caller's object lie: buffers, tensors and DLPack objects of the host."""

from __future__ import annotations

import ctypes
from typing import Any

from moonpool import _native
from moonpool.errors import UsageError

_DLPACK_HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: a CPU may read these


def span_of(value: Any, *, writable: bool) -> tuple[int, int, object]:
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
