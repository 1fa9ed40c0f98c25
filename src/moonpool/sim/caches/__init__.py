"""Block caches of the simulator, behind one contract: which blocks of a prompt are in, and who goes for space."""

from __future__ import annotations

from collections.abc import Callable

from moonpool.errors import UsageError
from moonpool.sim.caches.contract import BlockCache
from moonpool.sim.caches.frequency import LengthAware, Lfu
from moonpool.sim.caches.optimal import Optimal
from moonpool.sim.caches.recency import BlockLru, Fifo, Lru, Sieve

__all__ = ["POLICIES", "BlockCache", "BlockLru", "Fifo", "LengthAware", "Lfu", "Lru", "Optimal", "Sieve", "make_cache"]

# What evicts by what it has seen; `Optimal` needs the future, too.
POLICIES: dict[str, Callable[[int], BlockCache]] = {
    "lru": Lru,
    "block-lru": BlockLru,
    "fifo": Fifo,
    "lfu": Lfu,
    "length-aware": LengthAware,
    "sieve": Sieve,
}


def make_cache(policy: str, capacity_blocks: int) -> BlockCache:
    """An empty cache. Raises UsageError for an unknown policy."""
    if policy not in POLICIES:
        raise UsageError(f"no cache policy {policy!r}: one of {', '.join(POLICIES)} expected")
    return POLICIES[policy](capacity_blocks)
