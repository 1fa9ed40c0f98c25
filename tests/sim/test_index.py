"""The index of all caches against one that looks into each of them."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from moonpool.sim.caches import Lru
from moonpool.sim.index import CacheIndex

prompts = st.tuples(st.integers(0, 2), st.integers(1, 9)).map(
    lambda drawn: [drawn[0] * 100 + n for n in range(drawn[1])]
)
actions = st.lists(st.tuples(st.integers(0, 3), prompts, st.booleans()), max_size=60)


@given(actions, st.booleans())
def test_matches_are_what_a_look_into_each_cache_finds(
    steps: list[tuple[int, list[int], bool]], has_disk: bool
) -> None:
    index = CacheIndex(block_tokens=16)
    dram = [Lru(8) for _ in range(4)]
    disk = [Lru(12) for _ in range(4)]
    alive = set(range(4))
    for worker in range(4):
        index.add(worker, dram[worker], disk[worker] if has_disk else None)
    for worker, prompt, dies in steps:
        if worker not in alive:
            continue
        if dies and len(alive) > 1:
            index.remove(worker)
            alive.remove(worker)
            continue
        index.use(worker, prompt)
        tokens = len(prompt) * 16 - 3
        match = index.match(prompt, tokens)
        expected: dict[int, tuple[int, int, int]] = {}
        for other in sorted(alive):
            held = list(takewhile(lambda block, o=other: block in dram[o] or (has_disk and block in disk[o]), prompt))
            on_disk = 16 * sum(1 for block in held if block not in dram[other])
            length = min(16 * len(held), tokens - 1)
            on_disk = min(on_disk, length)
            expected[other] = (length, length - on_disk, on_disk)
            assert tuple(match.of(other))[1:] == expected[other]
        found = match.longest(10)
        lengths = [hit.tokens for hit in found]
        assert lengths == sorted(lengths, reverse=True)
        assert {hit.worker_id: tuple(hit)[1:] for hit in found} == {w: e for w, e in expected.items() if e[0]}
        assert match.longest(1) == found[:1]
