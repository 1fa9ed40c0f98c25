"""Canonical CBOR (RFC 8949, 4.2.1) of what block hashes are made of: numbers, text, bytes, tuples, None. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from moonpool.errors import UsageError

Value: TypeAlias = "int | str | bytes | tuple[Value, ...] | None"

NONE = b"\xf6"
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = 0x00, 0x20, 0x40, 0x60, 0x80
_KNOWN_TOKEN_COUNT_MAX = 2**19


def head(major: int, number: int) -> bytes:
    """The shortest head of a major type with its argument."""
    if number < 24:
        return bytes((major | number,))
    if number < 2**8:
        return bytes((major | 24, number))
    if number < 2**16:
        return struct.pack(">BH", major | 25, number)
    if number < 2**32:
        return struct.pack(">BI", major | 26, number)
    if number < 2**64:
        return struct.pack(">BQ", major | 27, number)
    raise UsageError(f"{number} has no CBOR of 64 bits")


def encode(value: Value) -> bytes:
    """One value."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return head(_UNSIGNED, value) if value >= 0 else head(_NEGATIVE, -1 - value)
    if isinstance(value, str):
        text = value.encode()
        return head(_TEXT, len(text)) + text
    if isinstance(value, bytes):
        return head(_BYTES, len(value)) + value
    return head(_ARRAY, len(value)) + b"".join(map(encode, value))


class _Tokens(dict[int, bytes]):
    """Encoded numbers, remembered: a vocabulary is small."""

    def __missing__(self, token: int) -> bytes:
        encoded = head(_UNSIGNED, token)
        if len(self) < _KNOWN_TOKEN_COUNT_MAX:
            self[token] = encoded
        return encoded


_TOKENS = _Tokens()


def encode_tokens(tokens: Sequence[int]) -> list[bytes]:
    """Each by itself; none is negative."""
    return list(map(_TOKENS.__getitem__, tokens))


def block_heads(parent_bytes: int, token_count: int) -> tuple[bytes, bytes]:
    """What stands before the parent and before the tokens of a triple (parent, tokens, extra keys)."""
    return head(_ARRAY, 3) + head(_BYTES, parent_bytes), head(_ARRAY, token_count)


def encode_block(parent: bytes, tokens: Sequence[int], extra: bytes) -> bytes:
    """The triple, its extra keys encoded already."""
    before, between = block_heads(len(parent), len(tokens))
    return b"".join((before, parent, between, *encode_tokens(tokens), extra))
