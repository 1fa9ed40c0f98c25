import ctypes
from array import array

import pytest

from moonpool.errors import UsageError
from moonpool.pool.regions import Regions
from moonpool.pool.values import Pieces, batch_of, batch_of_pieces
from moonpool.transfer.memory import span_of


def bytes_at(address: int, length: int) -> bytes:
    return ctypes.string_at(address, length)


class Tensor:
    """As much of torch.Tensor as is looked at."""

    def __init__(self, content: bytes, *, device: str = "cpu", contiguous: bool = True) -> None:
        self._memory = ctypes.create_string_buffer(content, len(content))
        self.nbytes, self.device, self._contiguous = len(content), device, contiguous

    def data_ptr(self) -> int:
        return ctypes.addressof(self._memory)

    def is_contiguous(self) -> bool:
        return self._contiguous


@pytest.mark.parametrize("value", [b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), Tensor(b"abcd")], ids=type)
def test_buffers_and_tensors_give_their_bytes(value: object) -> None:
    address, length, owner = span_of(value, writable=False)
    assert bytes_at(address, length) == b"abcd"
    del owner


def test_pieces_of_a_value_come_in_their_order() -> None:
    memory = ctypes.create_string_buffer(b"middle", 6)
    regions = Regions()
    regions.add(ctypes.addressof(memory), 6, memory)
    batch = batch_of([[b"head", (ctypes.addressof(memory), 6), bytearray(b"tail")], b"whole"], regions, writable=False)
    found = [bytes_at(*piece) for piece in zip(batch.addresses, batch.lengths, strict=True)]
    assert found == [b"head", b"middle", b"tail", b"whole"]
    assert batch.piece_counts == [3, 1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "encode"),
        (17, "bytes of a int"),
        (memoryview(b"abcdef")[::2], "contiguous"),
        (Tensor(b"ab", device="cuda:0"), "cuda:0"),
        (Tensor(b"ab", contiguous=False), "contiguous"),
        ([], "empty"),
        (b"", "at least one byte"),
        ([b"", bytearray()], "at least one byte"),
        ((1, 2, 3), "pair"),
        ((0, 8), "null"),
        ((4096, -1), "negative"),
        ((2**64 - 1, 2), "64 bits|registered"),
        ((4096, 8), "registered"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_used_is_refused_with_what_to_do(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        batch_of([value], Regions(), writable=False)


def test_nothing_is_written_into_read_only_memory() -> None:
    with pytest.raises(UsageError, match="read-only"):
        batch_of([b"constant"], Regions(), writable=True)


class DLPackOnly:
    """An array that speaks DLPack and has no buffer protocol."""

    def __init__(self, numpy_array: object) -> None:
        self._array = numpy_array

    def __dlpack__(self) -> object:
        return self._array.__dlpack__()  # type: ignore[attr-defined]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()  # type: ignore[attr-defined,no-any-return]


def test_dlpack_gives_its_bytes() -> None:
    numpy = pytest.importorskip("numpy")
    content = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    address, length, owner = span_of(DLPackOnly(content), writable=False)
    assert bytes_at(address, length) == content.tobytes()
    del owner
    with pytest.raises(UsageError, match="contiguous"):
        span_of(DLPackOnly(content[:, ::2]), writable=False)


def test_torch_tensors_give_their_bytes_of_any_type() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(8, dtype=torch.bfloat16)
    address, length, owner = span_of(tensor, writable=True)
    assert length == 16
    assert bytes_at(address, length) == bytes(tensor.view(torch.uint8).tolist())
    with pytest.raises(UsageError, match="contiguous"):
        span_of(torch.zeros(4, 4).t(), writable=False)
    del owner


def test_address_arrays_are_taken_inside_registered_memory() -> None:
    memory = ctypes.create_string_buffer(64)
    start = ctypes.addressof(memory)
    regions = Regions()
    regions.add(start, 64, memory)
    batch = batch_of_pieces(Pieces(array("Q", [start, start + 32]), [32, 32], [2]), 1, regions)
    assert list(batch.piece_counts or []) == [2]
    for bad, message in (
        (Pieces([start], [65]), "registered"),
        (Pieces([start], [0]), "empty"),
        (Pieces([start, start], [8]), "lengths"),
        (Pieces([start], [8], [2]), "add up to 2"),
        (Pieces([start, start + 8], [8, 8]), "1 keys"),
        (Pieces([-1], [8]), "negative"),
        (Pieces(array("I", [1]), [8]), "64-bit"),
        (Pieces(array("q", [-8]), [8]), "64 bits|registered"),
        (Pieces("text", [8]), "list of int"),
    ):
        with pytest.raises(UsageError, match=message):
            batch_of_pieces(bad, 1, regions)
