"""The native block index against its model, under any order of events."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from models.block_index import BlockIndexModel, Group, Tag
from moonpool import _native

NAMESPACES = st.integers(1, 2)
BLOCK_HASHES = st.integers(1, 8)
YES_OR_NO = st.booleans()
TIER_MASKS = st.sampled_from([0, 1, 2, 2, 2, 4, 6, 15])
GROUPS = st.lists(
    st.builds(Group, st.integers(0, 1), st.integers(1, 2), st.sampled_from([0, 0, 1, 2, 5])),
    max_size=2,
    unique_by=lambda group: group.kv_group,
)


@st.composite
def tags(draw: st.DrawFn) -> Tag:
    shard_count = draw(st.integers(1, 2))
    shard_index = draw(st.integers(0, shard_count - 1))
    return Tag(draw(NAMESPACES), draw(BLOCK_HASHES), draw(st.integers(0, 1)), shard_index, shard_count)


def usual_digest(tag: Tag) -> bytes:
    return repr(tuple(tag)).encode().ljust(16, b".")


def native_tags(tag: Tag | None) -> _native.Tags | None:
    if tag is None:
        return None
    return _native.Tags(
        tag.namespace_id,
        array("Q", [tag.block_hash]),
        [0],
        kv_group=tag.kv_group,
        shard_index=tag.shard_index,
        shard_count=tag.shard_count,
    )


class BlockIndexMachine(RuleBasedStateMachine):
    holders = Bundle("holders")
    objects = Bundle("objects")  # (digest, tag)

    @initialize(entry_count_max=st.sampled_from([4, 12, 1000]))
    def start(self, entry_count_max: int) -> None:
        self.native = _native.BlockIndex(entry_count_max)
        self.model = BlockIndexModel(entry_count_max)

    @rule(target=holders)
    def add_holder(self) -> int:
        holder = self.native.add_holder()
        assert holder == self.model.add_holder()
        return holder

    @rule(holder=consumes(holders))
    def forget(self, holder: int) -> None:
        self.native.forget(holder)
        self.model.forget(holder)
        with pytest.raises(IndexError, match="no such holder"):
            self.native.cleared(holder)

    @rule(target=objects, tag=tags(), odd=st.booleans())
    def name_an_object(self, tag: Tag, odd: bool) -> tuple[bytes, Tag | None]:
        return (usual_digest(tag), tag) if not odd else (usual_digest(tag._replace(block_hash=1)), tag)

    @rule(target=objects, number=st.integers(0, 3))
    def name_an_untagged_object(self, number: int) -> tuple[bytes, Tag | None]:
        return bytes([number]) * 16, None

    @rule(holder=holders, named=objects, tier_mask=TIER_MASKS)
    def stored(self, holder: int, named: tuple[bytes, Tag | None], tier_mask: int) -> None:
        digest, tag = named
        taken = self.native.stored(holder, [digest], native_tags(tag), tier_mask)
        assert taken == self.model.stored(holder, digest, tag, tier_mask)

    @rule(holder=holders, tag=tags(), count=st.integers(1, 8))
    def store_a_chain(self, holder: int, tag: Tag, count: int) -> None:
        for block_hash in range(1, count + 1):
            link = tag._replace(block_hash=block_hash)
            self.stored(holder, (usual_digest(link), link), 2)

    @rule(holder=holders, tag=tags(), before=TIER_MASKS, after=TIER_MASKS)
    def tell_one_anew(self, holder: int, tag: Tag, before: int, after: int) -> None:
        self.stored(holder, (usual_digest(tag), tag), before)
        self.change_all(holder, "snapshot_begin")
        self.stored(holder, (usual_digest(tag), tag), after)
        self.change_all(holder, "snapshot_end")
        self.expect_same_match(tag.namespace_id, [tag.block_hash], [Group(tag.kv_group, tag.shard_count, 0)])

    @rule(holder=holders, tag=tags(), first_goes=st.booleans())
    def store_one_shard_twice(self, holder: int, tag: Tag, first_goes: bool) -> None:
        digests = [usual_digest(tag), usual_digest(tag)[::-1]]
        for digest in digests:
            self.stored(holder, (digest, tag), 2)
        self.removed(holder, (digests[0 if first_goes else 1], tag), 2)
        self.expect_same_match(tag.namespace_id, [tag.block_hash], [Group(tag.kv_group, tag.shard_count, 0)])

    @rule(holder=holders, tag=tags(), hashes=st.lists(BLOCK_HASHES, max_size=8), tier_mask=TIER_MASKS, stored=YES_OR_NO)
    def tell_blocks_of_an_engine(self, holder: int, tag: Tag, hashes: list[int], tier_mask: int, stored: bool) -> None:
        taken = 0
        verb = self.native.blocks_stored if stored else self.native.blocks_removed
        found = verb(holder, tag.namespace_id, array("Q", hashes), tag.kv_group, tier_mask)
        for block_hash in hashes:
            block = Tag(tag.namespace_id, block_hash, tag.kv_group, 0, 1)
            digest = b"engine" + repr(tuple(block)).encode()  # any that no other object has
            if stored:
                taken += self.model.stored(holder, digest, block, tier_mask)
            else:
                self.model.removed(holder, digest, tier_mask)
        assert found == (taken if stored else None)

    @rule(holder=holders, named=objects, tier_mask=TIER_MASKS)
    def removed(self, holder: int, named: tuple[bytes, Tag | None], tier_mask: int) -> None:
        digest, tag = named
        self.native.removed(holder, [digest], native_tags(tag), tier_mask)
        self.model.removed(holder, digest, tier_mask)

    @rule(holder=holders, verb=st.sampled_from(["cleared", "snapshot_begin", "snapshot_end"]))
    def change_all(self, holder: int, verb: str) -> None:
        getattr(self.native, verb)(holder)
        getattr(self.model, verb)(holder)

    @rule(namespace_id=NAMESPACES, block_hashes=st.lists(BLOCK_HASHES, max_size=8), groups=GROUPS)
    def match(self, namespace_id: int, block_hashes: list[int], groups: list[Group]) -> None:
        self.expect_same_match(namespace_id, block_hashes, groups)

    @rule(namespace_id=NAMESPACES, groups=GROUPS, tier_mask=TIER_MASKS)
    def match_a_chain(self, namespace_id: int, groups: list[Group], tier_mask: int) -> None:
        self.expect_same_match(namespace_id, list(range(1, 9)), groups, tier_mask)

    def expect_same_match(
        self, namespace_id: int, block_hashes: list[int], groups: list[Group], tier_mask: int = 15
    ) -> None:
        fetchable, holders = self.native.match(
            namespace_id, array("Q", block_hashes), [tuple(group) for group in groups], tier_mask
        )
        wanted_fetchable, wanted = self.model.match(namespace_id, block_hashes, groups, tier_mask)
        assert fetchable == wanted_fetchable
        assert {holder: (block_count, tier_mask) for holder, block_count, tier_mask in holders} == wanted
        assert [-block_count for _, block_count, _ in holders] == sorted(-block_count for _, block_count, _ in holders)

    @rule(named=objects)
    def locate(self, named: tuple[bytes, Tag | None]) -> None:
        found = self.native.locate(named[0])
        assert len(found) == len(set(found))
        assert set(found) == self.model.locate(named[0])

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "native"):
            assert self.native.check_integrity() == ""
            stats = self.native.stats()
            assert stats.pop("bytes") > 0 or stats["entry_count"] == 0
            assert stats == self.model.stats()


TestBlockIndex = BlockIndexMachine.TestCase


def test_blocks_of_more_shards_than_bits_are_located_but_not_matched() -> None:
    index = _native.BlockIndex(10)
    holder = index.add_holder()
    tag = _native.Tags(1, [1], [0], shard_index=64, shard_count=65)
    assert index.stored(holder, [bytes(16)], tag) == 1
    assert index.locate(bytes(16)) == [holder]
    assert index.match(1, [1], [(0, 65, 0)]) == (0, [])


def test_bad_arguments_are_named() -> None:
    index = _native.BlockIndex(10)
    holder = index.add_holder()
    with pytest.raises(ValueError, match="16 bytes"):
        index.stored(holder, [b"short"])
    with pytest.raises(ValueError, match="differ in length"):
        index.stored(holder, [bytes(16)] * 2, _native.Tags(1, [1], [0]))
    with pytest.raises(IndexError, match="no such holder"):
        index.stored(holder + 1, [bytes(16)])
