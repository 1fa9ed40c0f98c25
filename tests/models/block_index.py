"""The block index as plain sets and dicts: slow, and obviously right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Holder = int


class Tag(NamedTuple):
    """Where an object belongs: the block, the group and the shard."""

    namespace_id: int
    block_hash: int
    kv_group: int
    shard_index: int
    shard_count: int


class Group(NamedTuple):
    """A kv_group's rule; window_block_count 0 is full attention."""

    kv_group: int
    shard_count: int
    window_block_count: int


@dataclass
class Record:
    """One object at one holder. It covers its tag's shard unless another record of the holder did when it came."""

    tag: Tag | None
    covers: bool
    tiers: set[int] = field(default_factory=set)
    marked: bool = False


class BlockIndexModel:
    """What native/core/block_index.hpp promises, without any of its structure."""

    def __init__(self, entry_count_max: int) -> None:
        self.entry_count_max = entry_count_max
        self.holders: dict[Holder, dict[bytes, Record]] = {}
        self.totals = dict.fromkeys(["stored_total", "removed_total", "unknown_removed_total", "refused_full_total"], 0)

    def add_holder(self) -> Holder:
        holder = next(number for number in range(len(self.holders) + 1) if number not in self.holders)
        self.holders[holder] = {}
        return holder

    def forget(self, holder: Holder) -> None:
        del self.holders[holder]

    def stored(self, holder: Holder, digest: bytes, tag: Tag | None, tier_mask: int) -> bool:
        records = self.holders[holder]
        tiers = tiers_of(tier_mask)
        if not tiers:
            return True
        record = records.get(digest)
        if record and tag != (record.tag if record.covers else None):
            del records[digest]
            record = None
        if record is None:
            if self.entry_count >= self.entry_count_max:
                self.totals["refused_full_total"] += 1
                return False
            taken = any(other.covers and other.tag == tag for other in records.values())
            record = records[digest] = Record(tag, covers=tag is not None and not taken)
        self.totals["stored_total"] += 1
        record.tiers = tiers if record.marked else record.tiers | tiers
        record.marked = False
        return True

    def removed(self, holder: Holder, digest: bytes, tier_mask: int) -> None:
        record = self.holders[holder].get(digest)
        if record is None or not record.tiers & tiers_of(tier_mask):
            self.totals["unknown_removed_total"] += 1
            return
        self.totals["removed_total"] += 1
        record.tiers -= tiers_of(tier_mask)
        if not record.tiers:
            del self.holders[holder][digest]

    def cleared(self, holder: Holder) -> None:
        self.holders[holder].clear()

    def snapshot_begin(self, holder: Holder) -> None:
        for record in self.holders[holder].values():
            record.marked = True

    def snapshot_end(self, holder: Holder) -> None:
        kept = {digest: record for digest, record in self.holders[holder].items() if not record.marked}
        self.holders[holder] = kept

    @property
    def entry_count(self) -> int:
        return sum(map(len, self.holders.values()))

    def stats(self) -> dict[str, int]:
        return {
            "holder_count": len(self.holders),
            "object_count": len({digest for records in self.holders.values() for digest in records}),
            "block_count": len({tag._replace(shard_index=0) for tag, _ in self.coverage(self.holders)}),
            "entry_count": self.entry_count,
            **self.totals,
        }

    def locate(self, digest: bytes) -> set[Holder]:
        return {holder for holder, records in self.holders.items() if digest in records}

    def coverage(self, holders: Iterable[Holder]) -> Iterator[tuple[Tag, set[int]]]:
        """What those holders have of blocks: tag and tiers."""
        for holder in holders:
            for record in self.holders[holder].values():
                if record.covers and record.tag is not None:
                    yield record.tag, record.tiers

    def match(
        self, namespace_id: int, block_hashes: Sequence[int], groups: Sequence[Group], tier_mask: int = 15
    ) -> tuple[int, dict[Holder, tuple[int, int]]]:
        """The fetchable length, and per holder that has anything its length and tier mask."""
        blocks = Blocks(self, namespace_id, block_hashes, tiers_of(tier_mask))
        fetchable, _ = blocks.longest(self.holders, groups)
        alone = {holder: blocks.longest([holder], groups) for holder in self.holders}
        return fetchable, {holder: found for holder, found in alone.items() if found[0] > 0}


@dataclass
class Blocks:
    """One question: these blocks of this namespace."""

    index: BlockIndexModel
    namespace_id: int
    block_hashes: Sequence[int]
    counted: set[int]  # tiers

    def longest(self, holders: Iterable[Holder], groups: Sequence[Group]) -> tuple[int, int]:
        """The largest n at which every group has what it needs, and the tiers of the whole blocks below n."""
        known = list(self.index.coverage(holders))
        tiers = [[self.whole(known, group, block_hash) for block_hash in self.block_hashes] for group in groups]
        for length in range(len(self.block_hashes) if groups else 0, 0, -1):
            if all(served(row, group, length) for row, group in zip(tiers, groups, strict=True)):
                return length, sum(set().union(*(block for row in tiers for block in row[:length])))
        return 0, 0

    def whole(self, known: list[tuple[Tag, set[int]]], group: Group, block_hash: int) -> set[int]:
        """The tiers of a block all of whose shards are known; empty if one is missing."""
        name = Tag(self.namespace_id, block_hash, group.kv_group, 0, group.shard_count)
        parts = [
            (tag.shard_index, tiers & self.counted)
            for tag, tiers in known
            if tag._replace(shard_index=0) == name and tiers & self.counted
        ]
        complete = {shard for shard, _ in parts} == set(range(group.shard_count))
        return set().union(*(tiers for _, tiers in parts)) if complete else set()


def served(tiers: list[set[int]], group: Group, length: int) -> bool:
    """A full group needs all blocks below length, a window group the last w of them."""
    first = max(0, length - group.window_block_count) if group.window_block_count else 0
    return all(tiers[first:length])


def tiers_of(tier_mask: int) -> set[int]:
    return {tier for tier in (1, 2, 4, 8) if tier_mask & tier}
