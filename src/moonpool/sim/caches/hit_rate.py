"""Hit rates of one cache for all requests of a trace, each with its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from moonpool.sim.caches.contract import BlockCache
from moonpool.sim.trace import BLOCK_TOKENS, Request


class HitRate(msgspec.Struct, frozen=True):
    """What came from the cache, of what was asked. Two rates compare only where their definitions are the same."""

    hit_count: int
    asked_count: int
    definition: str

    @property
    def rate(self) -> float:
        """Between 0 and 1; 0 where nothing was asked."""
        return self.hit_count / self.asked_count if self.asked_count else 0.0

    def __str__(self) -> str:
        return f"{self.rate:.5f} ({self.definition})"


class HitRates(msgspec.Struct, frozen=True):
    """The same replay counted in the ways that are in use. A hit is the longest prefix whose blocks are all cached."""

    blocks: HitRate
    tokens: HitRate
    tokens_of_last_half: HitRate


def replay(requests: Sequence[Request], cache: BlockCache, *, block_tokens: int = BLOCK_TOKENS) -> HitRates:
    """Ask the cache for each request's prompt, then let it take the prompt in. One cache, no time."""
    counts: list[tuple[int, int, int, int]] = []  # blocks hit, blocks, tokens hit, tokens
    for request in requests:
        matched = cache.matched(request.block_ids)
        hit_tokens = min(matched * block_tokens, request.input_tokens)
        counts.append((matched, len(request.block_ids), hit_tokens, request.input_tokens))
        cache.use(request.block_ids)
    last = counts[len(counts) // 2 :]
    return HitRates(
        blocks=_rate(counts, 0, "blocks of the longest cached prefix / blocks, all requests"),
        tokens=_rate(counts, 2, "tokens of the longest cached prefix / input tokens, all requests"),
        tokens_of_last_half=_rate(last, 2, "tokens of the longest cached prefix / input tokens, last half of requests"),
    )


def _rate(counts: Sequence[tuple[int, int, int, int]], column: int, definition: str) -> HitRate:
    hit, asked = (sum(row[place] for row in counts) for place in (column, column + 1))
    return HitRate(hit_count=hit, asked_count=asked, definition=definition)


def hit_rates(
    requests: Sequence[Request], make: Callable[[int], BlockCache], capacities_blocks: Sequence[int]
) -> dict[int, HitRates]:
    """One replay for each capacity in blocks."""
    return {capacity: replay(requests, make(capacity)) for capacity in capacities_blocks}
