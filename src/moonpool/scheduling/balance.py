"""Spreading requests over the ranks of one engine that computes attention data-parallel.

The prefill and decode load balancers of DeepSeek's inference overview (open-infra-index, day 6): ranks wait for each
other in every layer, so the slowest sets the pace. Experts are balanced in `moonpool.scheduling.experts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moonpool.errors import UsageError


class Load(NamedTuple):
    """Two kinds of work that shall be equal on all ranks at once; their units need not agree."""

    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt that waits for its prefill, of which the first `cached_tokens` need none."""

    input_tokens: int
    cached_tokens: int = 0

    @property
    def load(self) -> Load:
        """Attention pairs and tokens to compute: core attention costs by the former, all else by the latter."""
        pairs = (self.input_tokens**2 - self.cached_tokens**2) / 2
        return Load(pairs, self.input_tokens - self.cached_tokens)


def balance_prefill(prompts: Sequence[Prompt], held: Sequence[Load]) -> list[int]:
    """A rank for each prompt: equal attention compute and equal input tokens.

    `held` is what each rank has to do already, as sums of `Prompt.load`.
    """
    return spread([prompt.load for prompt in prompts], held)


def balance_decode(kv_tokens: Sequence[int], held: Sequence[Load]) -> list[int]:
    """A rank for each request by the KV tokens that it attends to: equal KV and equal request counts.

    `held` is what each rank decodes already, as (KV tokens, requests).
    """
    return spread([Load(tokens, 1) for tokens in kv_tokens], held)


def spread(items: Sequence[Load], held: Sequence[Load]) -> list[int]:
    """A rank for each item: the largest first, each to where the greater of its two shares stays least.

    On n empty ranks no rank gets more than 2/n of either kind, and one item. Of equal ranks the first is taken.
    """
    if not held:
        raise UsageError("no rank to spread requests over")
    wholes = Load(*(sum(column) or 1.0 for column in zip(*items, *held, strict=True)))

    def share(load: Load) -> tuple[float, float]:
        first, second = load.first / wholes.first, load.second / wholes.second
        return max(first, second), first + second

    ranks = list(held)
    chosen = [0] * len(items)
    for item in sorted(range(len(items)), key=lambda item: share(items[item]), reverse=True):
        added = [Load(rank.first + items[item].first, rank.second + items[item].second) for rank in ranks]
        best = min(range(len(ranks)), key=lambda rank: share(added[rank]))
        ranks[best] = added[best]
        chosen[item] = best
    return chosen
