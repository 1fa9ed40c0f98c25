"""The native allocator against a dict of used ranges."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.allocator import GRANULE_BYTES, AllocatorModel, rounded
from moonpool._native import Allocator

SIZES_BYTES = st.one_of(
    st.integers(0, 4 * GRANULE_BYTES),
    st.integers(0, 64).map(lambda count: count * GRANULE_BYTES),
    st.integers(0, 1 << 16),
)


class AllocatorMachine(RuleBasedStateMachine):
    @initialize(capacity_bytes=st.one_of(st.integers(0, 1 << 12), st.integers(1 << 12, 1 << 17)))
    def start(self, capacity_bytes: int) -> None:
        self.native = Allocator(capacity_bytes)
        self.model = AllocatorModel(capacity_bytes)

    @rule(size_bytes=SIZES_BYTES)
    def allocate(self, size_bytes: int) -> None:
        self.model.take(self.native.allocate(size_bytes), size_bytes)

    @rule(size_bytes=SIZES_BYTES, count=st.integers(2, 40))
    def allocate_many_of_one_size(self, size_bytes: int, count: int) -> None:
        for _ in range(count):
            self.model.take(self.native.allocate(size_bytes), size_bytes)

    @precondition(lambda self: self.model.used)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.model.used)))
        self.native.free(offset)
        self.model.free(offset)

    @precondition(lambda self: self.model.used)
    @rule(every=st.integers(1, 3), start=st.integers(0, 2))
    def free_every_nth(self, every: int, start: int) -> None:
        for offset in sorted(self.model.used)[start::every]:
            self.native.free(offset)
            self.model.free(offset)

    @rule(offset=st.integers(0, 1 << 17))
    def freeing_what_is_not_allocated_changes_nothing(self, offset: int) -> None:
        if offset not in self.model.used:
            self.native.free(offset)

    @invariant()
    def agree(self) -> None:
        assert self.native.check_integrity() == ""
        assert self.native.used_bytes == self.model.used_bytes
        assert self.native.largest_free_bytes == self.model.largest_free_bytes
        assert self.native.capacity_bytes == self.model.capacity_bytes


TestAllocator = AllocatorMachine.TestCase


@given(object_bytes=st.integers(1, 5000), count=st.integers(1, 60), data=st.data())
def test_objects_of_one_size_fill_the_arena_to_the_last_one(object_bytes: int, count: int, data: st.DataObject) -> None:
    """Whatever was freed in between, an arena of n places takes n objects."""
    allocator = Allocator(rounded(object_bytes) * count)
    offsets = [allocator.allocate(object_bytes) for _ in range(count)]
    assert None not in offsets
    assert allocator.allocate(1) is None
    for offset in data.draw(st.lists(st.sampled_from(offsets), unique=True)):
        allocator.free(offset)
        offsets.remove(offset)
    refilled = [allocator.allocate(object_bytes) for _ in range(count - len(offsets))]
    assert None not in refilled
    assert len(set(refilled + offsets)) == count
    assert allocator.check_integrity() == ""
