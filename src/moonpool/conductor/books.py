"""The one index of what every worker holds, by worker and tier; guarded by a lock, bounded, with a declared policy.

When the index is full, or a worker has its share, new blocks are refused and counted: what is not known is a miss.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moonpool._native import BlockIndex
from moonpool.types import GroupRule, Tier

_ALL = int(Tier.ENGINE | Tier.DRAM | Tier.DISK | Tier.COLD)
_NEAR = int(Tier.ENGINE | Tier.DRAM)


class Reach(NamedTuple):
    """Blocks from the beginning of a prompt that one worker can serve by itself.

    ``engine``, ``dram`` and ``disk`` are what that tier has alone; ``near`` is what engine and memory have together.
    """

    total: int = 0
    near: int = 0
    engine: int = 0
    dram: int = 0
    disk: int = 0


NOTHING = Reach()


class Books:
    """The index. Every method may be called from any thread."""

    def __init__(self, *, entry_count_max: int, entry_count_per_worker: int) -> None:
        self._index = BlockIndex(entry_count_max)
        self._entry_count_per_worker = entry_count_per_worker
        self._lock = threading.Lock()

    def open(self) -> int:
        """A number for a new worker; it holds nothing."""
        with self._lock:
            return self._index.add_holder()

    def close(self, holder: int) -> None:
        """The worker is gone."""
        with self._lock:
            self._index.forget(holder)

    def stored(self, holder: int, namespace_id: int, hashes: Sequence[int], *, kv_group: int, tier: Tier) -> int:
        """How many were taken."""
        with self._lock:
            room = self._entry_count_per_worker - self._index.entry_count(holder)
            if room < len(hashes):  # some of them may be known: those take no room, but that is not worth a look
                hashes = hashes[: max(0, room)]
            return self._index.blocks_stored(holder, namespace_id, hashes, kv_group, int(tier))

    def removed(self, holder: int, namespace_id: int, hashes: Sequence[int], *, kv_group: int, tier: Tier) -> None:
        """Blocks that are not known are counted."""
        with self._lock:
            self._index.blocks_removed(holder, namespace_id, hashes, kv_group, int(tier))

    def cleared(self, holder: int) -> None:
        """It holds nothing any more."""
        with self._lock:
            self._index.cleared(holder)

    def entry_count(self, holder: int) -> int:
        """Blocks known of it."""
        with self._lock:
            return self._index.entry_count(holder)

    def reach(self, namespace_id: int, hashes: Sequence[int], groups: Iterable[GroupRule]) -> dict[int, Reach]:
        """Per worker that holds the beginning of this prompt; the others are not named."""
        rules = list(groups)
        with self._lock:
            _, found = self._index.match(namespace_id, hashes, rules, _ALL)
            tiers = 0
            for _, _, tier_mask in found:
                tiers |= tier_mask
            alone = {
                tier: self._lengths(namespace_id, hashes, rules, mask=int(tier))
                for tier in (Tier.ENGINE, Tier.DRAM, Tier.DISK)
                if tiers & tier and tiers != tier
            }
            near = self._lengths(namespace_id, hashes, rules, mask=_NEAR) if tiers & ~_NEAR else None
        answer = {}
        for holder, total, tier_mask in found:
            only = {tier: total if tier_mask == tier else alone.get(tier, {}).get(holder, 0) for tier in _ALONE}
            answer[holder] = Reach(
                total,
                total if near is None else near.get(holder, 0),
                only[Tier.ENGINE],
                only[Tier.DRAM],
                only[Tier.DISK],
            )
        return answer

    def _lengths(
        self, namespace_id: int, hashes: Sequence[int], rules: list[GroupRule], *, mask: int
    ) -> dict[int, int]:
        _, found = self._index.match(namespace_id, hashes, rules, mask)
        return {holder: length for holder, length, _ in found}

    def stats(self) -> dict[str, int]:
        """Sizes and totals of the index."""
        with self._lock:
            return self._index.stats()

    def check_integrity(self) -> str:
        """Empty when the index is whole."""
        with self._lock:
            return self._index.check_integrity()


_ALONE = (Tier.ENGINE, Tier.DRAM, Tier.DISK)
