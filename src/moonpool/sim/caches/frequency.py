"""Caches that go by how often a block was used: LFU, and LengthAware of Mooncake's first paper."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from moonpool.sim.caches.contract import NOTHING, BlockCache

STALE_FACTOR_MAX = 4


class Lfu(BlockCache):
    """The block with the fewest uses goes first, the least recently used of them; a count is lost with its block.

    A block is used whenever one that continues it is, so whoever goes is a leaf.
    """

    __slots__ = ("_by_count",)
    blocks: dict[int, int]  # uses

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks, {})
        self._by_count: dict[int, OrderedDict[int, None]] = {}

    def use(self, block_ids: Sequence[int]) -> Sequence[int]:
        """Counts from tail to head, then evicts what is too much."""
        blocks, by_count = self.blocks, self._by_count
        for block in reversed(block_ids):
            count = blocks.get(block, 0)
            if count:
                del by_count[count][block]
            blocks[block] = count + 1
            by_count.setdefault(count + 1, OrderedDict())[block] = None
        excess = len(blocks) - self.capacity_blocks
        return [self._evict() for _ in range(excess)] if excess > 0 else NOTHING

    def _evict(self) -> int:
        count = 1
        while not self._by_count.get(count):  # nearly always the first: most blocks are used once
            count += 1
        block, _ = self._by_count[count].popitem(last=False)
        del self.blocks[block]
        return block

    def check_integrity(self) -> None:
        """Also that each block lies under its count, once."""
        super().check_integrity()
        listed = {block: count for count, blocks in self._by_count.items() for block in blocks}
        if listed != self.blocks or sum(map(len, self._by_count.values())) != len(self.blocks):
            raise AssertionError("counts and lists differ")


class LengthAware(BlockCache):
    """LFU in which, of blocks used equally often, the one that lies latest in its prompt goes first.

    Mooncake's first paper (arXiv 2407.00079v1, table 1) calls it "similar to LFU, but prioritizing cache blocks
    occurring later in requests"; of the readings of that, this is the one that comes nearest to its figures.
    """

    __slots__ = ("_heap", "_tick")
    blocks: dict[int, tuple[int, int, int]]  # (uses, -place in the prompt, tick)

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks, {})
        self._heap: list[tuple[int, int, int, int]] = []  # the same and the block; older ones of a block are stale
        self._tick = 0

    def use(self, block_ids: Sequence[int]) -> Sequence[int]:
        """Counts each block, then evicts what is too much."""
        blocks, heap = self.blocks, self._heap
        for place, block in enumerate(block_ids):
            known = blocks.get(block)
            self._tick += 1
            rank = (known[0] + 1 if known else 1, -place, self._tick)
            blocks[block] = rank
            heappush(heap, (*rank, block))
        excess = len(blocks) - self.capacity_blocks
        dropped = [self._evict() for _ in range(excess)] if excess > 0 else NOTHING
        if len(heap) > STALE_FACTOR_MAX * self.capacity_blocks:
            heap[:] = [(*rank, block) for block, rank in blocks.items()]
            heapify(heap)
        return dropped

    def _evict(self) -> int:
        while True:
            *rank, block = heappop(self._heap)
            if self.blocks.get(block) == tuple(rank):
                del self.blocks[block]
                return block
