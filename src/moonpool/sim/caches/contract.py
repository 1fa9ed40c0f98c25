"""What every block cache does, whatever it evicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence

from moonpool.errors import UsageError

NOTHING: tuple[int, ...] = ()


class BlockCache(ABC):
    """A cache of whole blocks of one size, without their bytes: who is in, and who goes for space.

    Block ids cover the whole prefix, so a block is of use only where all blocks before it are in the cache too.
    """

    __slots__ = ("blocks", "capacity_blocks")

    leaf_first: bool = True
    """Whether a prefix never has a hole: no block goes before those that continue it."""

    def __init__(self, capacity_blocks: int, blocks: Collection[int]) -> None:
        if capacity_blocks < 1:
            raise UsageError(f"a cache of {capacity_blocks} blocks: at least 1 expected")
        self.capacity_blocks = capacity_blocks
        self.blocks = blocks

    @abstractmethod
    def use(self, block_ids: Sequence[int]) -> Sequence[int]:
        """Count a use of each of these blocks of one prompt, and bring in those that are missing.

        Returns the blocks that are not in the cache after it, out of those that were and those just given: all that
        an index of this cache has to drop after it has added `block_ids`.
        """

    def matched(self, block_ids: Sequence[int]) -> int:
        """How many blocks at the start of this prompt are in the cache. Counts as no use."""
        blocks = self.blocks
        count = 0
        for block in block_ids:
            if block not in blocks:
                break
            count += 1
        return count

    def __contains__(self, block: int) -> bool:
        return block in self.blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[int]:
        return iter(self.blocks)

    def check_integrity(self) -> None:
        """Raises AssertionError where this cache contradicts itself."""
        if len(self.blocks) > self.capacity_blocks:
            raise AssertionError(f"{len(self.blocks)} blocks in a cache of {self.capacity_blocks}")
