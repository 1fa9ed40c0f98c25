"""kv_groups: which of an engine's cache groups the pool can store, and by which rule.

A group is layers that share one cache rule. Full attention needs every block of a prefix, a window group the
last w. Groups that need something else (recurrent state, chunks, rings) are named and refused: the engine then
runs with 0 hits and says which group it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moonpool.types import GroupRule

FULL_ATTENTION = "full_attention"
WINDOW = "window"


class CacheGroup(msgspec.Struct, frozen=True):
    """One cache group of an engine.

    ``kind`` is `FULL_ATTENTION`, `WINDOW` or the engine's own name of a rule that we do not store.
    ``block_size`` and ``window_token_count`` are in tokens. ``layer_block_bytes`` is what a block of one layer takes
    with its padding, ``content_bytes`` what the blocks of all layers hold without (0: not known).
    ``same_on_every_shard`` says that each tensor-parallel rank holds the same bytes (MLA), so that one copy under
    shard 0 serves all.
    """

    kv_group: int
    kind: str
    block_size: int
    layer_names: tuple[str, ...]
    window_token_count: int = 0
    layer_block_bytes: int = 0
    content_bytes: int = 0
    same_on_every_shard: bool = False

    @property
    def window_block_count(self) -> int:
        """Blocks that a hit needs at its end; 0 for full attention.

        A token sees itself and the ``window - 1`` before it, and a hit ends on a block boundary: so the next
        token needs the last ``window - 1`` tokens, rounded up to blocks.
        """
        if self.kind != WINDOW:
            return 0
        return max(1, -(-(self.window_token_count - 1) // self.block_size))

    @property
    def chained(self) -> bool:
        """Whether a block is useless without its parent."""
        return self.kind == FULL_ATTENTION


def find_obstacle(groups: Sequence[CacheGroup], *, hash_block_size: int) -> str:
    """Why these groups cannot be stored; empty when they can."""
    if not groups:
        return "the model has no KV cache"
    for group in groups:
        if group.kind not in (FULL_ATTENTION, WINDOW):
            return f"kv_group {group.kv_group} follows the rule {group.kind!r}, which the pool does not store yet"
        if group.kind == WINDOW and group.window_token_count < 1:
            return f"kv_group {group.kv_group} is a window group without a window"
    sizes = sorted({group.block_size for group in groups})
    if len(sizes) > 1:
        return f"kv_groups with different block sizes {sizes} are not stored yet"
    if sizes[0] != hash_block_size:
        return f"blocks of {sizes[0]} tokens are hashed every {hash_block_size} tokens, which is not stored yet"
    return ""


def match_rules(groups: Sequence[CacheGroup], *, shard_count: int) -> tuple[GroupRule, ...]:
    """The rules that a look-up is to apply, one a group."""
    return tuple(
        GroupRule(
            kv_group=group.kv_group,
            shard_count=1 if group.same_on_every_shard else shard_count,
            window_block_count=group.window_block_count,
        )
        for group in groups
    )


def blocks_to_load(group: CacheGroup, *, first: int, end: int) -> range:
    """Block positions that this group must get so that a hit of ``end`` blocks holds, ``first`` being there."""
    if group.kind == WINDOW:
        return range(max(first, end - group.window_block_count), end)
    return range(first, end)
