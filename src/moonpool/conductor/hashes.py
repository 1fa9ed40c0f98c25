"""The block hashes that engines compute, computed without them; byte for byte. Pure.

vLLM (v1/core/kv_cache_utils.py, 0.32): ``hash((parent or root, tokens, extra keys or None))`` with ``root =
hash(seed)``; the hash is SHA-256 or XXH3-128 over the pickled or CBOR-encoded value. SGLang: see
`moonpool.conductor.sglang_hashes`. Indexes and KV events carry 64 bits of a hash: the last eight bytes of vLLM's, the
first eight of SGLang's.
"""

from __future__ import annotations

import functools
import hashlib
import pickle  # noqa: TID251 - writes only: vLLM hashes the pickled value
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from moonpool.conductor import cbor
from moonpool.conductor.sglang_hashes import page_hashes
from moonpool.errors import ConfigError, UsageError
from moonpool.identity import Media

VLLM_SEED_DEFAULT = "vllm-none-hash"  # where neither PYTHONHASHSEED is set nor the algorithm's seed secret
ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
TOKEN_MAX = 2**32 - 1
_HINT_BYTES = 8
_HEX = re.compile(r"([0-9a-f]{2}){16,64}")
_PICKLE_PROTOCOL = 5  # HIGHEST_PROTOCOL of every Python that vLLM runs on

Strategy = Literal["vllm", "sglang", "sglang_bigram"]
# tagged: ("lora", name, path), ("cache_salt", …) as since vLLM 0.31; tagged_names: the same without the path;
# untagged: bare names and salts, as older releases hash and all releases publish them.
ExtraKeys = Literal["tagged", "tagged_names", "untagged"]


class HashRules(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine hashes. Workers with equal rules, model and tenant can be compared."""

    strategy: Strategy = "vllm"
    algorithm: str = "sha256"
    seed: str | None = VLLM_SEED_DEFAULT  # None: not known
    root: str = ""  # hex of what the first block's hash starts from; where it is known the seed is not needed
    block_size_tokens: int
    extra_keys: ExtraKeys = "tagged"  # of vLLM
    namespaced: bool = False  # of SGLang with events in the format "dynamo"

    def __post_init__(self) -> None:
        if self.block_size_tokens < 1:
            raise UsageError(f"block_size_tokens = {self.block_size_tokens}: at least 1")
        if self.strategy == "vllm" and self.algorithm not in ALGORITHMS:
            raise UsageError(f"hash algorithm {self.algorithm!r}: one of {', '.join(ALGORITHMS)}")
        if self.root and not _HEX.fullmatch(self.root):
            raise UsageError("the root of block hashes is given in hex, 16 to 64 bytes")


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """What the hashes of a prompt cover besides its tokens."""

    lora_name: str = ""
    lora_path: str = ""
    cache_salt: str = ""
    media: tuple[Media, ...] = ()  # sorted by where they lie in the prompt
    embedding_digests: tuple[bytes, ...] = ()  # SHA-256 of each block's prompt embeddings; () where there are none

    def __bool__(self) -> bool:
        return self != NO_EXTRAS


NO_EXTRAS = Extras()


def block_hashes(rules: HashRules, tokens: Sequence[int], extras: Extras = NO_EXTRAS) -> list[bytes]:
    """The hash of every complete block. UsageError for tokens out of range, or when the rules name no seed."""
    if tokens and not 0 <= min(tokens) <= max(tokens) <= TOKEN_MAX:
        raise UsageError(f"tokens lie between {min(tokens)} and {max(tokens)}: 32-bit numbers without sign")
    if rules.strategy != "vllm":
        return _sglang_hashes(rules, tokens, extras)
    digest = digest_function(rules.algorithm)
    size = rules.block_size_tokens
    parent = _root(rules)
    if not extras and rules.algorithm == "sha256_cbor" and len(parent) == hashlib.sha256().digest_size:
        return _plain_hashes(parent, tokens, size)
    hashes = []
    for start in range(0, len(tokens) - size + 1, size):
        keys = extra_keys(rules, extras, start) if extras else None
        parent = digest((parent, tuple(tokens[start : start + size]), keys))
        hashes.append(parent)
    return hashes


def _plain_hashes(parent: bytes, tokens: Sequence[int], size: int) -> list[bytes]:
    """The usual case in half the time: SHA-256 over CBOR, nothing hashed besides tokens."""
    encoded = cbor.encode_tokens(tokens)
    head, middle = cbor.block_heads(len(parent), size)
    hashes = []
    for start in range(0, len(tokens) - size + 1, size):
        body = b"".join((head, parent, middle, *encoded[start : start + size], cbor.NONE))
        parent = hashlib.sha256(body).digest()
        hashes.append(parent)
    return hashes


def _root(rules: HashRules) -> bytes:
    if rules.root:
        return bytes.fromhex(rules.root)
    if rules.seed is None:
        raise UsageError("the seed of this engine's block hashes is not known: set PYTHONHASHSEED for it")
    return root_hash(rules.algorithm, rules.seed)


@functools.lru_cache(maxsize=256)
def root_hash(algorithm: str, seed: str) -> bytes:
    """What the first block's hash of vLLM starts from."""
    return digest_function(algorithm)(seed)


def digest_function(algorithm: str) -> Callable[[object], bytes]:
    """Value → digest. ConfigError where the package of an algorithm is not installed."""
    if algorithm.endswith("_cbor"):
        digest = _digest_of(algorithm.removesuffix("_cbor"))
        return lambda value: digest(_cbor_bytes(value))
    digest = _digest_of(algorithm)
    return lambda value: digest(pickle.dumps(value, protocol=_PICKLE_PROTOCOL))


def _digest_of(name: str) -> Callable[[bytes], bytes]:
    if name == "sha256":
        return lambda data: hashlib.sha256(data).digest()
    try:
        import xxhash
    except ImportError as error:
        raise ConfigError(
            "the engine hashes blocks by xxhash, which is not installed here: pip install 'moonpool[conductor]'"
        ) from error
    chosen: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
    return chosen


def _cbor_bytes(value: object) -> bytes:
    if isinstance(value, tuple):
        parent, tokens, keys = value
        return cbor.encode_block(parent, tokens, cbor.NONE if keys is None else cbor.encode(keys))
    return cbor.encode(value)  # type: ignore[arg-type]  # the seed


def extra_keys(rules: HashRules, extras: Extras, start: int) -> tuple[cbor.Value, ...] | None:
    """What vLLM adds for the block that begins at this token; None for nothing."""
    end = start + rules.block_size_tokens
    keys: list[cbor.Value] = []
    if extras.lora_name:
        keys.append(("lora", extras.lora_name, extras.lora_path))
    for medium in extras.media:
        if medium.token_offset >= end:
            break
        if start < medium.token_offset + medium.token_count:
            keys.append(("mm", medium.id, medium.token_offset - start))
            if end < medium.token_offset + medium.token_count:
                break
    if start == 0 and extras.cache_salt:
        keys.append(("cache_salt", extras.cache_salt))
    if extras.embedding_digests:
        keys.append(("prompt_embeds", _embedding_digest(extras, start // rules.block_size_tokens)))
    return tuple(_spelled(rules, key) for key in keys) or None


def _embedding_digest(extras: Extras, block: int) -> bytes:
    if block >= len(extras.embedding_digests):
        raise UsageError(f"{len(extras.embedding_digests)} digests of prompt embeddings: one for each complete block")
    return extras.embedding_digests[block]


def _spelled(rules: HashRules, key: cbor.Value) -> cbor.Value:
    assert isinstance(key, tuple)
    if rules.extra_keys == "tagged":
        return key
    if rules.extra_keys == "tagged_names":
        return key[:2] if key[0] == "lora" else key
    return key[1:] if key[0] == "mm" else key[1]


def _sglang_hashes(rules: HashRules, tokens: Sequence[int], extras: Extras) -> list[bytes]:
    if extras.lora_name or extras.media or extras.embedding_digests:
        raise UsageError("SGLang hashes adapters and media by numbers of its own: such prompts are not looked up")
    return page_hashes(
        tokens,
        page_size=rules.block_size_tokens,
        cache_salt=extras.cache_salt,
        bigram=rules.strategy == "sglang_bigram",
        namespaced=rules.namespaced,
    )


def hints(rules: HashRules, hashes: Sequence[bytes]) -> array[int]:
    """The 64 bits of each hash that KV events and indexes carry; 0, which means no block, becomes 1."""
    part = slice(-_HINT_BYTES, None) if rules.strategy == "vllm" else slice(_HINT_BYTES)
    numbers = array("Q", b"".join(digest[part] for digest in hashes))
    if sys.byteorder == "little":
        numbers.byteswap()
    if 0 in numbers:
        numbers = array("Q", [number or 1 for number in numbers])
    return numbers


def hint_of(value: int | bytes, *, strategy: Strategy = "vllm") -> int:
    """The same of one hash as an event has it: whole, or a number with or without sign."""
    if isinstance(value, bytes):
        part = value[-_HINT_BYTES:] if strategy == "vllm" else value[:_HINT_BYTES]
        return int.from_bytes(part, "big") or 1
    return value & 0xFFFFFFFFFFFFFFFF or 1
