"""Our own chained block hashes, for engines that have none (transformers) and for tests. Pure.

A block's hash is SHA-256 over its parent's hash, its tokens as 32-bit little-endian numbers, and what else its
bytes depend on; so it covers the whole prefix. Engines with hashes of their own (vLLM, SGLang) keep theirs.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

from moonpool.errors import UsageError
from moonpool.identity.canonical import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HASH_ALGORITHM = "moonpool_sha256"
_TOKEN_MAX = 2**32 - 1
_MEDIA_HEADER = struct.Struct("<qI")


class Media(msgspec.Struct, frozen=True):
    """An image, a sound or the like inside the prompt."""

    id: str  # of its content; see media_id
    token_offset: int  # where its first token lies in the prompt
    token_count: int


def media_id(content: bytes) -> str:
    """The id of a medium by its content: only such ids may be shared without asking (client-made ones may lie)."""
    return hashlib.sha256(content).hexdigest()


def refusal_to_share(*, client_media_ids: bool, prompt_embeddings: bool, allowed: bool) -> str:
    """Why blocks of a request must not be shared, or "" when they may.

    A client that picks the id of its image, or sends embeddings instead of tokens, picks what the hash says of
    bytes that nobody checked: it could place its own bytes under another's key.
    """
    if allowed or not (client_media_ids or prompt_embeddings):
        return ""
    what = "ids of media chosen by the client" if client_media_ids else "prompt embeddings"
    return f"{what} are not shared (connector.share_media allows it)"


def block_hashes(
    tokens: Sequence[int],
    *,
    block_size_tokens: int,
    media: Sequence[Media] = (),
    extra: Mapping[str, Any] | None = None,
) -> list[bytes]:
    """The hash of every complete block of `tokens`, 32 bytes each.

    `extra`: what every block depends on besides (a salt, an adapter's name); None and {} are the same.
    """
    if block_size_tokens < 1:
        raise UsageError(f"block_size_tokens = {block_size_tokens}: at least 1")
    if tokens and not 0 <= min(tokens) <= max(tokens) <= _TOKEN_MAX:
        raise UsageError(f"tokens lie between {min(tokens)} and {max(tokens)}: 32-bit numbers without sign")
    hashes: list[bytes] = []
    parent = _root(block_size_tokens, canonical_bytes(extra or {}))
    for start in range(0, len(tokens) - block_size_tokens + 1, block_size_tokens):
        block = array("I", tokens[start : start + block_size_tokens])
        parent = hashlib.sha256(parent + block.tobytes() + _media_inside(media, start, block_size_tokens)).digest()
        hashes.append(parent)
    return hashes


@functools.lru_cache(maxsize=256)
def _root(block_size_tokens: int, extra: bytes) -> bytes:
    """What the first block's hash starts from. 32 bytes, so that what follows cannot be mistaken for a part of it."""
    if array("I").itemsize != 4:
        raise AssertionError("array('I') has 4 bytes an item on every platform that we build for")
    return hashlib.sha256(f"{HASH_ALGORITHM} {block_size_tokens}\n".encode() + extra).digest()


def _media_inside(media: Sequence[Media], start: int, block_size_tokens: int) -> bytes:
    """Which media touch the block, and where they begin relative to it (negative: in a block before).

    Each with the length of its id; all blocks of a chain have the same number of tokens, so nothing is ambiguous.
    """
    end = start + block_size_tokens
    spelled = b""
    for each in media:
        if each.token_offset < end and each.token_offset + each.token_count > start:
            name = each.id.encode()
            spelled += _MEDIA_HEADER.pack(each.token_offset - start, len(name)) + name
    return spelled
