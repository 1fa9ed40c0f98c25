"""The best that any policy could do, knowing the future."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from moonpool.errors import UsageError
from moonpool.sim.caches.contract import BlockCache

NEVER = sys.maxsize
ROOT = None


class Optimal(BlockCache):
    """Belady's rule on leaves: the leaf whose next use lies furthest ahead goes first, or a newcomer does not come in.

    It has to be told all prompts beforehand, and then be given exactly these, in this order.
    """

    __slots__ = ("_children", "_heap", "_parents", "_position", "_uses")
    blocks: dict[int, int]  # number of the request that uses it next

    def __init__(self, capacity_blocks: int, *, future: Iterable[Sequence[int]]) -> None:
        super().__init__(capacity_blocks, {})
        uses: dict[int, list[int]] = {}
        for number, block_ids in enumerate(future):
            for block in block_ids:
                uses.setdefault(block, []).append(number)
        for numbers in uses.values():
            numbers.reverse()  # so that the next is the last, and pops
        self._uses = uses
        self._position = -1
        self._children: dict[int | None, int] = {ROOT: 0}
        self._parents: dict[int, int | None] = {}
        self._heap: list[tuple[int, int]] = []  # (-next use, leaf); some are stale

    def use(self, block_ids: Sequence[int]) -> Sequence[int]:
        """Raises UsageError if this is not the prompt that was foretold."""
        self._position += 1
        next_uses = [self._next_use(block) for block in block_ids]
        matched = self.matched(block_ids)
        for block, next_use in zip(block_ids[:matched], next_uses, strict=False):
            self.blocks[block] = next_use
        parent = block_ids[matched - 1] if matched else ROOT
        self._push_if_leaf(parent)
        dropped: list[int] = []
        for place in range(matched, len(block_ids)):
            block, next_use = block_ids[place], next_uses[place]
            if len(self.blocks) >= self.capacity_blocks:
                victim = self._evict(next_use, spared=parent)
                if victim is None:
                    dropped.extend(block_ids[place:])
                    break
                dropped.append(victim)
            self.blocks[block] = next_use
            self._parents[block] = parent
            self._children[parent] += 1
            self._children[block] = 0
            parent = block
        self._push_if_leaf(parent)
        return dropped

    def _next_use(self, block: int) -> int:
        numbers = self._uses.get(block)
        if not numbers or numbers.pop() != self._position:
            raise UsageError(f"request {self._position} uses block {block}, which was not foretold")
        return numbers[-1] if numbers else NEVER

    def _push_if_leaf(self, block: int | None) -> None:
        if block is not ROOT and self._children[block] == 0:
            heappush(self._heap, (-self.blocks[block], block))

    def _evict(self, next_use: int, *, spared: int | None) -> int | None:
        """The leaf that went; None if all are used sooner than the newcomer. Never `spared`, its parent."""
        aside: list[tuple[int, int]] = []
        victim = None
        while self._heap and victim is None:
            top = heappop(self._heap)
            leaf = top[1]
            if self.blocks.get(leaf) != -top[0] or self._children[leaf]:
                continue  # stale
            if leaf == spared:
                aside.append(top)
            elif -top[0] <= next_use:
                aside.append(top)
                break
            else:
                victim = leaf
        for item in aside:
            heappush(self._heap, item)
        if victim is not None:
            self._forget(victim)
        return victim

    def _forget(self, block: int) -> None:
        del self.blocks[block], self._children[block]
        parent = self._parents.pop(block)
        self._children[parent] -= 1
        self._push_if_leaf(parent)
