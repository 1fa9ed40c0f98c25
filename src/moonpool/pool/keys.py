"""Callers' keys as the bytes that the wire carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonpool import _native
from moonpool.errors import UsageError
from moonpool.types import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = str | bytes


def key_bytes(key: Key) -> bytes:
    """UTF-8 of a str, bytes as they are; UsageError for an empty key, one over 1 KiB or another type."""
    if isinstance(key, str):
        try:
            encoded = key.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"key {key!r} is no text: {error.reason}; give bytes instead") from error
    elif isinstance(key, bytes):
        encoded = key
    else:
        raise UsageError(f"a key is str or bytes, not {type(key).__name__}; convert it, for example with str()")
    if not encoded:
        raise UsageError("a key is empty; keys have 1 to 1024 bytes")
    if len(encoded) > KEY_BYTES_MAX:
        raise UsageError(
            f"key {encoded[:32]!r}… has {len(encoded)} bytes, more than {KEY_BYTES_MAX}; use a digest of it as key",
            kind="key_too_long",
        )
    return encoded


def key_list(keys: Iterable[Key]) -> list[bytes]:
    """Every key of a batch as bytes. A lone str or bytes is refused: it would be read as a list of its letters."""
    if isinstance(keys, str | bytes | bytearray | memoryview):
        raise UsageError(f"keys is a list of keys; for one key write [{keys!r}]")
    try:
        chosen = list(keys)
    except TypeError as error:
        raise UsageError(f"keys is a list of str or bytes: {error}") from error
    if _native.are_plain_keys(chosen, KEY_BYTES_MAX):
        return chosen  # type: ignore[return-value]  # engines' batches
    return [key_bytes(key) for key in chosen]


def key_text(key: bytes) -> str:
    """A key as a person reads and types it: its text, or 0x and hexadecimal digits where it is no plain text."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "0x" + key.hex()
    plain = text.isprintable() and not text.startswith("0x") and text == text.strip()
    return text if plain else "0x" + key.hex()


def key_from_text(text: str) -> bytes:
    """The inverse of `key_text`, for command lines: text, or hexadecimal digits after 0x."""
    if not text.startswith("0x"):
        return key_bytes(text.encode(errors="surrogateescape"))  # a shell's bytes that are no UTF-8 are the key's
    try:
        return key_bytes(bytes.fromhex(text[2:]))
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"key {text!r} begins with 0x but is not hexadecimal: {error}") from error
