"""Growing prompts, and the block ids that they have in a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from random import Random

import msgspec

from moonpool.sim.trace import BLOCK_TOKENS, Request


class Spread(msgspec.Struct, frozen=True):
    """A log-normal quantity by its median; `sigma` is the deviation of its logarithm. Draws are cut to the bounds."""

    median: float
    sigma: float = 0.0
    lowest: float = 0.0
    highest: float = math.inf

    def draw(self, random: Random) -> float:
        """One value."""
        return min(max(self.median * math.exp(random.gauss(0.0, self.sigma)), self.lowest), self.highest)

    def draw_tokens(self, random: Random) -> int:
        """One value, as a whole number of at least 1."""
        return max(1, round(self.draw(random)))


class Context:
    """What one conversation or agent has in its prompt so far. Only full blocks can be shared with a longer prompt."""

    __slots__ = ("_full", "_ids", "_tail_tokens")

    def __init__(self, ids: Iterator[int] | None = None) -> None:
        self._ids = count() if ids is None else ids
        self._full: list[int] = []
        self._tail_tokens = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return len(self._full) * BLOCK_TOKENS + self._tail_tokens

    def grow(self, tokens: int) -> None:
        """Append text that nobody else has."""
        block_count, self._tail_tokens = divmod(self._tail_tokens + tokens, BLOCK_TOKENS)
        self._full.extend(next(self._ids) for _ in range(block_count))

    def fork(self) -> Context:
        """Another that begins with the same text."""
        child = Context(self._ids)
        child._full = self._full.copy()
        child._tail_tokens = self._tail_tokens
        return child

    def ask(self, arrival_s: float, output_tokens: int) -> Request:
        """A request with this prompt; its answer becomes part of the prompt only by `grow`."""
        tail = (next(self._ids),) if self._tail_tokens else ()
        return Request(arrival_s, self.tokens, output_tokens, (*self._full, *tail))


def arrivals(random: Random, rate_per_s: float) -> Iterator[float]:
    """Seconds of a Poisson process, without end."""
    now = 0.0
    while True:
        now += random.expovariate(rate_per_s)
        yield now


def in_order(requests: list[Request], request_count: int) -> list[Request]:
    """The first so many by arrival; the order of equal arrivals is that of their making."""
    return sorted(requests, key=lambda request: request.arrival_s)[:request_count]
