"""The records of the object table's model: what is put, reserved, held, and what goes together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moonpool.types import Reason, Status

HEADER_BYTES = 64

UnitName = tuple[Any, ...]
Answer = tuple[Status, Reason]


def space_bytes(length: int) -> int:
    return HEADER_BYTES + -(-length // 64) * 64


@dataclass(frozen=True)
class Put:
    """What a put asks for. namespace_id 0: no tag."""

    key: bytes
    length: int = 100
    tenant_id: int = 0
    namespace_id: int = 0
    block_hash: int = 0
    parent_hash: int = 0
    shard_index: int = 0
    shard_count: int = 1
    bundle_count: int = 1
    kv_group: int = 0
    chained: bool = True
    bundle_id: int = 0
    priority: int = 0
    keep_at_least_ms: int = 0
    keep_at_most_ms: int = 0

    @property
    def needs_parent(self) -> bool:
        return self.namespace_id != 0 and self.chained and self.parent_hash != 0

    def block_name(self, block_hash: int) -> UnitName:
        return ("block", self.tenant_id, self.namespace_id, block_hash, self.kv_group)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal in all members of a unit."""
        if self.namespace_id == 0:
            return (self.bundle_count,)
        return (self.parent_hash, self.bundle_count, self.shard_count, self.chained)


@dataclass
class Holds:
    """All holds of one connection on one object."""

    views: int = 0
    copies: int = 0
    revoked: int = 0
    deadline_ms: int = 0

    @property
    def active(self) -> int:
        return self.views + self.copies


@dataclass(eq=False)
class Thing:
    """One reservation or object, from its reserve to the end of its space."""

    put: Put
    writer: int
    generation: int
    reserved_ms: int
    unit: Unit
    stage: str = "reserved"  # reserved, detached, committed, vanished
    detach_reason: Reason = Reason.NONE
    checksum: int = 0
    pinned: bool = False
    holds: dict[int, Holds] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return space_bytes(self.put.length)

    @property
    def held(self) -> bool:
        return any(holds.active for holds in self.holds.values())

    @property
    def identity(self) -> tuple[int, bytes]:
        return (self.put.tenant_id, self.put.key)


@dataclass(eq=False)
class Unit:
    """What becomes visible together and goes together."""

    name: UnitName
    shape: tuple[Any, ...]
    bundle_count: int
    parent_name: UnitName | None
    last_use: int = 0
    keep_until_ms: int = 0
    expires_ms: int = 0
    priority: int = 0
    visible: bool = False


@dataclass(frozen=True)
class Limits:
    object_count_max: int
    held_bytes: int
    reserved_bytes: int
    pinned_bytes: int
    holds: int
    reservations: int

    def native(self) -> dict[str, int]:
        """As the native table wants them."""
        return {
            "object_count_max": self.object_count_max,
            "held_bytes_per_connection_max": self.held_bytes,
            "reserved_bytes_per_connection_max": self.reserved_bytes,
            "pinned_bytes_max": self.pinned_bytes,
            "holds_per_connection_max": self.holds,
            "reservations_per_connection_max": self.reservations,
        }


def block(*, namespace_id: int, block_hash: int, kv_group: int, shard_index: int, key_suffix: bytes = b"") -> Put:
    """A block of a binary tree: 1 is the root, the parent of n is n // 2. Namespace n has n shards a block; kv_group
    1 is not chained.
    """
    shard = shard_index % namespace_id
    return Put(
        b"block%d/%d/%d/%d%s" % (namespace_id, kv_group, block_hash, shard, key_suffix),
        namespace_id=namespace_id,
        block_hash=block_hash,
        parent_hash=block_hash // 2,
        kv_group=kv_group,
        chained=kv_group == 0,
        shard_index=shard,
        shard_count=namespace_id,
        bundle_count=namespace_id,
    )


def block_path(namespace_id: int, block_hash: int) -> list[Put]:
    """All shards of the chained block and of its ancestors, the root first."""
    hashes = [block_hash >> shift for shift in reversed(range(block_hash.bit_length()))]
    return [
        block(namespace_id=namespace_id, block_hash=number, kv_group=0, shard_index=shard)
        for number in hashes
        for shard in range(namespace_id)
    ]


def bundle_member(bundle_id: int, member: int, bundle_count: int = 2) -> Put:
    return Put(b"bundle%d/%d" % (bundle_id, member), bundle_id=bundle_id, bundle_count=bundle_count)
