"""CRC32C against a table-driven one in Python."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool import _native


def crc32c_of(data: bytes, crc: int = 0) -> int:
    """Byte by byte, with the reflected Castagnoli polynomial (RFC 3720, appendix B.4, has its test vectors)."""
    state = crc ^ 0xFFFFFFFF
    for byte in data:
        state = (state >> 8) ^ TABLE[(state ^ byte) & 0xFF]
    return state ^ 0xFFFFFFFF


def table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [table_entry(byte) for byte in range(256)]


@given(data=st.binary(max_size=4000), crc=st.integers(0, 2**32 - 1))
def test_every_path_gives_the_definition(data: bytes, crc: int) -> None:
    wanted = crc32c_of(data, crc)
    assert _native.crc32c(data, crc) == wanted
    assert _native.crc32c_portable(data, crc) == wanted


@given(length=st.integers(0, 450_000), skip=st.integers(0, 64), seed=st.integers(0, 2**32))
def test_the_copy_is_the_source_and_its_sum_the_portable_one(length: int, skip: int, seed: int) -> None:
    source = memoryview(random.Random(seed).randbytes(length + skip))[skip:]
    target = bytearray(length)
    assert _native.copy_crc32c(target, source) == _native.crc32c_portable(source)
    assert target == source


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_two_sums_combine_to_that_of_both(first: bytes, second: bytes) -> None:
    combined = _native.crc32c_combine(_native.crc32c(first), _native.crc32c(second), len(second))
    assert combined == _native.crc32c(first + second)


def test_a_copy_between_different_lengths_is_refused_untouched() -> None:
    target = bytearray(8)
    with pytest.raises(ValueError, match="differ in length"):
        _native.copy_crc32c(target, b"123456789")
    assert target == bytearray(8)


def test_a_read_only_target_is_refused() -> None:
    with pytest.raises(BufferError):
        _native.copy_crc32c(bytes(3), b"abc")
