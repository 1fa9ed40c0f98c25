"""KV events of vLLM, SGLang and Mooncake's master: msgpack in, plain values out. Pure.

A batch is the array ``[time, [event, …], rank of data parallelism]``. Events are maps with a ``type`` (vLLM since 0.11,
SGLang 0.5.23, Mooncake) or arrays that begin with it (older releases); fields that we do not know are skipped. Tokens
are looked at only where a hash is checked, so they are left encoded until then.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from moonpool.conductor.hashes import Strategy, hint_of
from moonpool.errors import ProtocolError
from moonpool.types import Tier

_NIL = Raw(b"\xc0")
TIERS: dict[str, Tier] = {
    "gpu": Tier.ENGINE,
    "npu": Tier.ENGINE,
    "xpu": Tier.ENGINE,
    "hbm": Tier.ENGINE,
    "cpu": Tier.DRAM,
    "cpu_pinned": Tier.DRAM,
    "cpu_tier1": Tier.DRAM,
    "cpu_tier2": Tier.DRAM,
    "host": Tier.DRAM,
    "disk": Tier.DISK,
    "storage": Tier.DISK,
    "ssd": Tier.DISK,
    "external": Tier.COLD,
}
_REMOTE = "REMOTE"
KV_GROUP_MAX = 65_535


class Stored(Struct, frozen=True, gc=False):
    """Blocks that the worker holds now in one tier: consecutive ones of a prompt; the first one has the parent."""

    hashes: list[int]
    tier: Tier
    parent: int | None = None  # of the first block; None: the beginning of a prompt
    kv_group: int | None = None
    block_size_tokens: int | None = None
    tokens: Raw = _NIL
    extra_keys: Raw = _NIL
    lora_name: str = ""
    whole_hashes: tuple[bytes, ...] = ()  # where the engine publishes whole hashes
    group_kind: str = ""
    window_tokens: int = 0

    def token_ids(self) -> list[int] | None:
        """None where the event has none that we understand (pairs of tokens, nothing)."""
        try:
            return msgspec.msgpack.decode(self.tokens, type=list[int])
        except (msgspec.ValidationError, msgspec.DecodeError):
            return None

    def published_keys(self) -> list[Any] | None:
        """One entry a block: what its hash covers besides tokens, untagged; None where there is nothing."""
        found = msgspec.msgpack.decode(self.extra_keys)
        return found if isinstance(found, list) else None


class Removed(Struct, frozen=True, gc=False):
    """Blocks that the worker no longer holds in one tier."""

    hashes: list[int]
    tier: Tier
    kv_group: int | None = None


class Cleared(Struct, frozen=True, gc=False):
    """The worker holds nothing any more."""


Event: TypeAlias = Stored | Removed | Cleared


class Batch(Struct, frozen=True):
    """What one message says. ``skipped`` counts events that were not understood."""

    events: list[Event]
    rank: int | None = None
    skipped: int = 0


class _Batch(Struct, array_like=True, frozen=True):
    time: float
    events: list[Raw]
    rank: int | None = None


class _StoredMap(Struct, tag_field="type", tag="BlockStored", frozen=True):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None = None
    token_ids: Raw = _NIL
    block_size: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Raw = _NIL
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    seq_hashes: list[int] | None = None


class _RemovedMap(Struct, tag_field="type", tag="BlockRemoved", frozen=True):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    seq_hashes: list[int] | None = None


class _ClearedMap(Struct, tag_field="type", tag="AllBlocksCleared", frozen=True):
    pass


class _StoredArray(Struct, array_like=True, tag="BlockStored", frozen=True):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: Raw
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Raw = _NIL


class _RemovedArray(Struct, array_like=True, tag="BlockRemoved", frozen=True):
    block_hashes: list[int | bytes]
    medium: str | None = None


class _ClearedArray(Struct, array_like=True, tag="AllBlocksCleared", frozen=True):
    pass


_BATCH = msgspec.msgpack.Decoder(_Batch)
_MAP = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap)
_ARRAY = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)


def decode(payload: bytes | memoryview, *, strategy: Strategy = "vllm") -> Batch:
    """A message's payload. ProtocolError when it is no batch at all; single events that are none are counted."""
    try:
        batch = _BATCH.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ProtocolError(f"not a batch of KV events: {error}") from error
    events: list[Event] = []
    skipped = 0
    for raw in batch.events:
        event = _decode_event(raw, strategy)
        if event is None:
            skipped += 1
        else:
            events.append(event)
    return Batch(events, batch.rank, skipped)


def _decode_event(raw: Raw, strategy: Strategy) -> Event | None:
    first = bytes(memoryview(raw)[:1])
    is_map = bool(first) and (first[0] & 0xF0 == 0x80 or first[0] in (0xDE, 0xDF))
    try:
        found = (_MAP if is_map else _ARRAY).decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if isinstance(found, _ClearedMap | _ClearedArray):
        return Cleared()
    tier = TIERS.get((found.medium or "gpu").lower())
    if tier is None or not 0 <= (getattr(found, "group_idx", None) or 0) <= KV_GROUP_MAX:
        return None
    if getattr(found, "locality", None) == _REMOTE:
        tier = Tier.COLD  # somebody else's memory: reachable by this worker, and not its own
    hashes = getattr(found, "seq_hashes", None) or found.block_hashes
    hints = [hint_of(each, strategy=strategy) for each in hashes]
    if isinstance(found, _RemovedMap | _RemovedArray):
        return Removed(hints, tier, getattr(found, "group_idx", None))
    return _stored(found, hints, tier=tier, strategy=strategy)


def _stored(found: _StoredMap | _StoredArray, hints: list[int], *, tier: Tier, strategy: Strategy) -> Stored:
    parent = found.parent_block_hash
    by_map = found if isinstance(found, _StoredMap) else None
    return Stored(
        hints,
        tier,
        parent=None if parent is None else hint_of(parent, strategy=strategy),
        kv_group=by_map.group_idx if by_map else None,
        block_size_tokens=found.block_size,
        tokens=found.token_ids,
        extra_keys=found.extra_keys,
        lora_name=found.lora_name or "",
        whole_hashes=tuple(each for each in found.block_hashes if isinstance(each, bytes)),
        group_kind=(by_map.kv_cache_spec_kind if by_map else None) or "",
        window_tokens=(by_map.kv_cache_spec_sliding_window if by_map else None) or 0,
    )
