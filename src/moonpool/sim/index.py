"""Who holds which blocks: the caches of all workers, and the longest prefix of a prompt at each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moonpool.scheduling.routing import Hit
from moonpool.sim.caches import BlockCache


class CacheIndex:
    """The DRAM cache (and disk cache, if any) of every worker, and beside them the holders of every block.

    Holders are bits of an integer, so that matching a prompt against a thousand workers is one `and` a block.
    Blocks of a prompt count as held as soon as the prompt is given to a worker: its queue is first in, first out.
    """

    def __init__(self, *, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._dram: dict[int, BlockCache] = {}
        self._disk: dict[int, BlockCache] = {}
        self._holders: dict[int, int] = {}
        self._disk_holders: dict[int, int] = {}
        self.has_disk = False

    def add(self, worker_id: int, dram: BlockCache, disk: BlockCache | None = None) -> None:
        """A worker joins with these (empty) caches."""
        self._dram[worker_id] = dram
        if disk is not None:
            self._disk[worker_id] = disk
            self.has_disk = True

    def remove(self, worker_id: int) -> None:
        """A worker is gone, and its blocks with it."""
        _drop(self._holders, 1 << worker_id, self._dram.pop(worker_id, ()))
        _drop(self._disk_holders, 1 << worker_id, self._disk.pop(worker_id, ()))

    def match(self, block_ids: Sequence[int], tokens: int) -> Match:
        """The longest prefixes of a prompt of that many tokens."""
        if self.has_disk:
            disk_holders = self._disk_holders
            masks = [self._holders.get(block, 0) | disk_holders.get(block, 0) for block in block_ids]
        else:
            get = self._holders.get
            masks = []
            for block in block_ids:
                mask = get(block, 0)
                if not mask:
                    break
                masks.append(mask)
        return Match(self, block_ids, tokens=tokens, masks=masks)

    def use(self, worker_id: int, block_ids: Sequence[int]) -> None:
        """The worker is given a prompt: its blocks are touched, the new ones stored, and others evicted for them."""
        cache = self._dram[worker_id]
        bit = 1 << worker_id
        holders = self._holders
        evicted = cache.use(block_ids)
        for block in block_ids:
            holders[block] = holders.get(block, 0) | bit
        if evicted:
            _drop(holders, bit, evicted)
            disk = self._disk.get(worker_id)
            if disk is not None:
                self._demote(disk, bit, evicted)

    def disk_tokens(self, worker_id: int, block_ids: Sequence[int]) -> int:
        """How many tokens of these blocks the worker has on disk only."""
        dram = self._dram.get(worker_id)
        if worker_id not in self._disk or dram is None:
            return 0
        return self.block_tokens * sum(1 for block in block_ids if block not in dram)

    def block_count(self, worker_id: int) -> int:
        """Blocks in the worker's DRAM."""
        return len(self._dram[worker_id])

    def _demote(self, disk: BlockCache, bit: int, blocks: Sequence[int]) -> None:
        holders = self._disk_holders
        gone = disk.use(blocks)
        for block in blocks:
            holders[block] = holders.get(block, 0) | bit
        _drop(holders, bit, gone)


def _drop(holders: dict[int, int], bit: int, blocks: Iterable[int]) -> None:
    for block in blocks:
        left = holders[block] & ~bit
        if left:
            holders[block] = left
        else:
            del holders[block]


class Match:
    """`moonpool.scheduling.routing.Prefixes` of one prompt. Good until the index changes."""

    __slots__ = ("_block_ids", "_index", "_levels", "_tokens")

    def __init__(self, index: CacheIndex, block_ids: Sequence[int], *, tokens: int, masks: Sequence[int]) -> None:
        self._index = index
        self._block_ids = block_ids
        self._tokens = tokens
        levels: list[tuple[int, int]] = []  # (blocks, workers that hold at least so many), shortest first
        alive = -1
        for depth, mask in enumerate(masks):
            left = alive & mask
            if left != alive:
                if depth:
                    levels.append((depth, alive))
                alive = left
                if not left:
                    break
        if alive > 0:
            levels.append((len(masks), alive))
        levels.reverse()
        self._levels = levels

    def longest(self, count: int) -> list[Hit]:
        """See `Prefixes`."""
        hits: list[Hit] = []
        given = 0
        for depth, mask in self._levels:
            left = mask & ~given
            given = mask
            while left:
                if len(hits) == count:
                    return hits
                low = left & -left
                left ^= low
                hits.append(self._hit(low.bit_length() - 1, depth))
        return hits

    def of(self, worker_id: int) -> Hit:
        """See `Prefixes`."""
        for depth, mask in self._levels:
            if mask >> worker_id & 1:
                return self._hit(worker_id, depth)
        return Hit(worker_id, 0)

    def _hit(self, worker_id: int, depth: int) -> Hit:
        index = self._index
        tokens = depth * index.block_tokens
        if tokens >= self._tokens:
            tokens = self._tokens - 1  # the last token is always computed
        disk = min(tokens, index.disk_tokens(worker_id, self._block_ids[:depth])) if index.has_disk else 0
        return Hit(worker_id, tokens, tokens - disk, disk)
