"""A stand-in for Mooncake's tool&agent trace, which we do not hold: made to the statistics that are published of it.

23,608 requests in 3,537 s; three system prompts begin 10,938, 9,203 and 3,449 of them; inputs of 8,590 tokens in the
mean and 6,346 in the median; the hit rate of one LRU cache by its size (token-weighted, last half of the requests):
flat up to 3,000 blocks, where only system prompts hit, then a knee between 5,000 and 20,000, where follow-ups come back
after a median of 2.5 minutes. Everything else about it is a guess.
"""

from __future__ import annotations

from random import Random

import msgspec

from moonpool.sim.trace import BLOCK_TOKENS, Request
from moonpool.sim.workloads.context import Context, Spread, in_order

ROOTS = ((10_938, 6), (9_203, 6), (3_449, 7))  # requests that begin with it, blocks


class ToolAgentStandIn(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are fitted; see the module."""

    request_count: int = 23_608
    span_s: float = 3_537.0
    first_tokens: Spread = Spread(2_400, 1.12, lowest=16, highest=120_000)
    further_tokens: Spread = Spread(900, 1.0, lowest=16, highest=30_000)
    follow_share: float = 0.38
    pause_s: Spread = Spread(135, 1.0, lowest=2)
    output_tokens: Spread = Spread(30, 1.9, lowest=1, highest=2_000)

    def requests(self, seed: int = 0) -> list[Request]:
        """In order of arrival; the same for the same seed."""
        random = Random(seed)
        base = Context()
        roots = [base.fork() for _ in ROOTS]
        for root, (_, block_count) in zip(roots, ROOTS, strict=True):
            root.grow(block_count * BLOCK_TOKENS)
        made: list[Request] = []
        while len(made) < self.request_count:
            [root] = random.choices(roots, [share for share, _ in ROOTS])
            made.extend(self._session(random, root.fork()))
        return in_order(made[: self.request_count], self.request_count)

    def _session(self, random: Random, context: Context) -> list[Request]:
        # Sessions that began before the trace did are in the middle of it: so the first minutes look like the others.
        now = random.uniform(-self.span_s / 2, self.span_s)
        turns = []
        context.grow(self.first_tokens.draw_tokens(random))
        while now < self.span_s:
            output = self.output_tokens.draw_tokens(random)
            if now >= 0:
                turns.append(context.ask(now, output))
            if random.random() >= self.follow_share:
                break
            context.grow(output + self.further_tokens.draw_tokens(random))
            now += self.pause_s.draw(random)
        return turns
