"""Digests and messages as Python sees them; whole messages are tested in native/tests and by the fuzzer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moonpool import _native

KEYS_REQUESTS = [11, 12, 13, 14, 16]  # exists, remove, pin, unpin, why
EMPTY_REQUESTS = [21, 22, 25, 0x100 + 22]  # stat, ping, goodbye, and the answer to ping
KNOWN = set(range(1, 26)) | {0x100 + number for number in range(1, 25) if number != 9} | {0x1FF}


def keys_message(keys: list[bytes], incarnation: int = 1) -> bytes:
    """u64 incarnation, u32 count, then per key a digest of 16 bytes, u16 length and the key."""
    items = [bytes(16) + struct.pack("<H", len(key)) + key for key in keys]
    return struct.pack("<QI", incarnation, len(keys)) + b"".join(items)


@given(keys=st.lists(st.binary(max_size=40), max_size=5), message_type=st.sampled_from(KEYS_REQUESTS))
def test_exactly_one_whole_message_is_accepted(keys: list[bytes], message_type: int) -> None:
    message = keys_message(keys)
    assert _native.decode_message(message_type, message)
    assert not any(_native.decode_message(message_type, message[:length]) for length in range(len(message)))
    assert not _native.decode_message(message_type, message + b"\0")


@given(message_type=st.integers(0, 2**16 - 1), payload=st.binary(max_size=200))
@example(message_type=11, payload=struct.pack("<QI", 1, 0xFFFFFFFF))
@example(message_type=4, payload=struct.pack("<QI", 1, 16_385) + bytes(12 * 16_385))
def test_foreign_bytes_are_refused_and_never_crash(message_type: int, payload: bytes) -> None:
    accepted = _native.decode_message(message_type, payload)
    assert message_type in KNOWN or not accepted


def test_a_key_may_have_1024_bytes_and_no_more() -> None:
    assert _native.decode_message(11, keys_message([bytes(1024)]))
    assert not _native.decode_message(11, keys_message([bytes(1025)]))


@pytest.mark.parametrize("message_type", EMPTY_REQUESTS)
def test_messages_without_a_payload_have_none(message_type: int) -> None:
    assert _native.decode_message(message_type, b"")
    assert not _native.decode_message(message_type, b"\0")


@given(key=st.binary(min_size=16, max_size=16), tenant_id=st.integers(0, 2**64 - 1), name=st.binary(max_size=100))
def test_a_key_digest_is_the_hash_of_tenant_and_key(key: bytes, tenant_id: int, name: bytes) -> None:
    assert _native.key_digest(key, tenant_id, name) == _native.siphash128(key, struct.pack("<Q", tenant_id) + name)


def test_a_hash_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        _native.siphash128(b"short", b"")


def test_the_reference_vector_holds() -> None:
    assert _native.siphash128(bytes(range(16)), bytes(range(15))).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"
