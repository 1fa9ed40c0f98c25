"""Which blocks a step offers to the pool.

A block is offered once, when it is complete and its hash is known: from the first block that the pool is not known
to hold, parents first. So a prefix that the engine had in its own cache, and the pool had lost, is offered again.
What a worker could not store is offered again later, seldom while that goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moonpool.connectors.groups import CacheGroup
from moonpool.connectors.plans import BlockRun

# The engine's block 0 stands for "no block here" (left behind by a window).
NULL_BLOCK = 0


class SaveProgress(msgspec.Struct):
    """How far the chain of one request is offered."""

    offered: int = 0
    last_hash: bytes = b""
    retry_at_ms: float = 0.0
    retry_ms: float = 0.0
    stored_count: int = 0  # blocks newly stored for this request, over all kv_groups


class SaveLimits(msgspec.Struct, frozen=True):
    """``block_count_max`` blocks of a chain are offered in one step; failed ones again after a growing while."""

    block_count_max: int = 4096
    retry_ms_min: float = 200.0
    retry_ms_max: float = 2000.0


def due_range(
    progress: SaveProgress, *, block_hashes: Sequence[bytes], complete: int, now_ms: float, limits: SaveLimits
) -> range:
    """Positions to offer now; empty when there is nothing new, or it is too early for another try."""
    if progress.offered and (
        progress.offered > len(block_hashes) or block_hashes[progress.offered - 1] != progress.last_hash
    ):
        progress.offered = 0  # the request's tokens were changed under the chain
    end = min(complete, len(block_hashes), progress.offered + limits.block_count_max)
    if end <= progress.offered or now_ms < progress.retry_at_ms:
        return range(0)
    return range(progress.offered, end)


def make_runs(
    groups: Sequence[CacheGroup],
    *,
    block_hashes: Sequence[bytes],
    block_numbers: Sequence[Sequence[int]],
    positions: range,
) -> tuple[BlockRun, ...]:
    """Runs of existing blocks at these positions, one or more a group.

    ``block_numbers`` has one row a group. A window group has no blocks any more before its window; a position
    beyond a row ends the run.
    """
    runs: list[BlockRun] = []
    for group in groups:
        row = block_numbers[group.kv_group]
        begin = positions.start
        for position in range(positions.start, positions.stop + 1):
            here = position < positions.stop and position < len(row) and row[position] != NULL_BLOCK
            if here:
                continue
            if position > begin:
                runs.append(
                    BlockRun(
                        kv_group=group.kv_group,
                        first=begin,
                        parent_hash=block_hashes[begin - 1] if begin else b"",
                        block_hashes=tuple(block_hashes[begin:position]),
                        block_numbers=tuple(row[begin:position]),
                    )
                )
            begin = position + 1
    return tuple(runs)


def offered(progress: SaveProgress, *, end: int, block_hashes: Sequence[bytes]) -> None:
    """An order up to ``end`` was sent."""
    progress.offered = end
    progress.last_hash = block_hashes[end - 1] if end else b""


def stored(progress: SaveProgress) -> None:
    """The workers stored all of an order."""
    progress.retry_ms = 0.0


def fell_short(
    progress: SaveProgress, *, end: int, block_hashes: Sequence[bytes], now_ms: float, limits: SaveLimits
) -> None:
    """The workers stored an order only up to ``end``: go back to there, and try again after a growing while."""
    progress.retry_ms = min(limits.retry_ms_max, max(limits.retry_ms_min, progress.retry_ms * 2))
    progress.retry_at_ms = now_ms + progress.retry_ms
    if end < progress.offered:
        offered(progress, end=min(end, len(block_hashes)), block_hashes=block_hashes)
