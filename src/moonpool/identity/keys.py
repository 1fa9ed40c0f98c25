"""Keys of blocks: namespace, kv_group, shard and the engine's whole block hash. Pure."""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple

from moonpool.errors import UsageError
from moonpool.types import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MAGIC = b"kv1\0"
_PREFIX = struct.Struct("<4sQHH")
_HINT_BYTES = 8
_LOW_64_BITS = operator.itemgetter(slice(-_HINT_BYTES, None))
BLOCK_HASH_BYTES_MAX = KEY_BYTES_MAX - _PREFIX.size


class Shard(NamedTuple):
    """Which part of a block a worker has."""

    shard_index: int
    shard_count: int


class BlockKey(NamedTuple):
    """The parts of a block's key."""

    namespace_id: int
    kv_group: int
    shard_index: int
    block_hash: bytes


def shard_of(rank: int, size: int, *, replicated: bool) -> Shard:
    """The shard of a worker. Where every worker has the same bytes (MLA, replicated heads) the only one is (0, 1),
    so that one copy serves engines of every size; elsewhere (rank, size).
    """
    if not 0 <= rank < size:
        raise UsageError(f"rank {rank} of {size} workers: ranks run from 0 to size - 1")
    return Shard(0, 1) if replicated else Shard(rank, size)


def key_prefix(namespace_id: int, *, kv_group: int = 0, shard_index: int = 0) -> bytes:
    """What all keys of one namespace, group and shard begin with; the block hash follows."""
    if not 0 < namespace_id < 2**64:
        raise UsageError(f"namespace_id {namespace_id}: a number from 1 to 2**64 - 1")
    if not 0 <= kv_group < 2**16 or not 0 <= shard_index < 2**16:
        raise UsageError(f"kv_group {kv_group}, shard_index {shard_index}: numbers below 65536")
    return _PREFIX.pack(_MAGIC, namespace_id, kv_group, shard_index)


def block_key(namespace_id: int, block_hash: bytes, *, kv_group: int = 0, shard_index: int = 0) -> bytes:
    """The key of one block. The hash goes in whole: the 64 bits of a tag are only a hint."""
    return block_keys(key_prefix(namespace_id, kv_group=kv_group, shard_index=shard_index), (block_hash,))[0]


def block_keys(prefix: bytes, block_hashes: Iterable[bytes]) -> list[bytes]:
    """The keys of many blocks of one `key_prefix`."""
    keys = [prefix + block_hash for block_hash in block_hashes]
    for key in keys:
        if not _PREFIX.size < len(key) <= KEY_BYTES_MAX:
            raise UsageError(f"a block hash has 1 to {BLOCK_HASH_BYTES_MAX} bytes, not {len(key) - _PREFIX.size}")
    return keys


def parse_block_key(key: bytes) -> BlockKey | None:
    """The parts of a block's key, or None for a key of another kind."""
    if len(key) <= _PREFIX.size or not key.startswith(_MAGIC):
        return None
    _, namespace_id, kv_group, shard_index = _PREFIX.unpack_from(key)
    return BlockKey(namespace_id, kv_group, shard_index, key[_PREFIX.size :])


def block_hash_hint(block_hash: bytes) -> int:
    """The low 64 bits of a block hash, big-endian as vLLM's KV events have them; 0 (no parent) becomes 1."""
    return int.from_bytes(block_hash[-_HINT_BYTES:], "big") or 1


def block_hash_hints(block_hashes: Iterable[bytes]) -> array[int]:
    """`block_hash_hint` of each, as the native calls read them fastest."""
    chosen = list(block_hashes)
    low = b"".join(map(_LOW_64_BITS, chosen))
    if len(low) != _HINT_BYTES * len(chosen) or bytes(_HINT_BYTES) in low:  # a short hash, or perhaps a hint of 0
        return array("Q", map(block_hash_hint, chosen))
    hints = array("Q", low)
    if sys.byteorder == "little":
        hints.byteswap()
    return hints


def digest_hints(digests: Sequence[bytes]) -> array[int]:
    """As `block_hash_hints`, of digests of one algorithm: all have the width of the first, which is not checked one by
    one. A third of the time, which counts inside an engine's step.
    """
    width = len(digests[0]) if digests else 0
    joined = b"".join(digests)
    if not width or width % _HINT_BYTES or len(joined) != width * len(digests):
        return block_hash_hints(digests)
    step = width // _HINT_BYTES
    hints = array("Q", joined)[step - 1 :: step]
    if bytes(_HINT_BYTES) in hints.tobytes():  # perhaps a hint of 0
        return block_hash_hints(digests)
    if sys.byteorder == "little":
        hints.byteswap()
    return hints
