"""SGLang's block hashes as its KV events have them (0.5.23: mem_cache/utils.py, disaggregation/kv_events.py). Pure."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

_SALT_TAG = b"sglang-cache-salt-v1\0"
_NAMESPACE_TAG = b"sglang-kv-event-namespace-v1"
_PUBLISHED_BYTES = 8


def page_hashes(
    tokens: Sequence[int], *, page_size: int, cache_salt: str = "", bigram: bool = False, namespaced: bool = False
) -> list[bytes]:
    """The digest of every complete page; the first eight bytes are what events carry.

    bigram: of engines that speculate with EAGLE, whose unit is a pair of neighbouring tokens. namespaced: of engines
    with events in the format "dynamo", which mixes the salt into what they publish.
    """
    parent = hashlib.sha256(_SALT_TAG + cache_salt.encode()).digest() if cache_salt else b""
    unit_count = max(0, len(tokens) - 1) if bigram else len(tokens)
    hashes = []
    for start in range(0, unit_count - page_size + 1, page_size):
        parent = hashlib.sha256(parent + _page_bytes(tokens, start, page_size=page_size, bigram=bigram)).digest()
        hashes.append(parent)
    if not (namespaced and cache_salt):
        return hashes
    seed = _namespace_seed(cache_salt)
    return [hashlib.sha256(seed + digest[:_PUBLISHED_BYTES]).digest() for digest in hashes]


def _page_bytes(tokens: Sequence[int], start: int, *, page_size: int, bigram: bool) -> bytes:
    if not bigram:
        return _little_endian(tokens[start : start + page_size])
    pairs = zip(tokens[start : start + page_size], tokens[start + 1 : start + page_size + 1], strict=True)
    return _little_endian([token for pair in pairs for token in pair])


def _little_endian(tokens: Sequence[int]) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens) if _SWAPPED else array("I", tokens).tobytes()


_SWAPPED = array("I", [1]).tobytes() != b"\x01\0\0\0"


def _namespace_seed(cache_salt: str) -> bytes:
    """Of (no extra key, this salt): a byte for whether it is there, its length, itself."""
    text = cache_salt.encode()
    return hashlib.sha256(_NAMESPACE_TAG + b"\x00" + b"\x01" + len(text).to_bytes(8, "little") + text).digest()
