"""Independent prompts, and conversations of several turns."""

from __future__ import annotations

import heapq
from random import Random

import msgspec

from moonpool.sim.trace import Request
from moonpool.sim.workloads.context import Context, Spread, arrivals, in_order


class Poisson(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts that arrive by chance; each begins with one of a few shared documents.

    The defaults are one of the simulated loads of Mooncake's first paper (arXiv 2407.00079 §8): half of each prompt is
    in a cache once its document was seen.
    """

    request_count: int = 10_000
    rate_per_s: float = 2.0
    document_count: int = 200
    document_tokens: int = 8_192
    own_tokens: Spread = Spread(8_192)
    output_tokens: Spread = Spread(512)

    def requests(self, seed: int = 0) -> list[Request]:
        """In order of arrival; the same for the same seed."""
        random = Random(seed)
        root = Context()
        documents = [root.fork() for _ in range(self.document_count)]
        for document in documents:
            document.grow(self.document_tokens)
        made = []
        for _, now in zip(range(self.request_count), arrivals(random, self.rate_per_s), strict=False):
            prompt = random.choice(documents).fork()
            prompt.grow(self.own_tokens.draw_tokens(random))
            made.append(prompt.ask(now, self.output_tokens.draw_tokens(random)))
        return made


class MultiTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations: each turn's prompt is all that was said before, and the new question.

    A turn comes a pause after the one before it; what an answer takes is part of the pause, so a slow cluster does not
    slow down those who ask.
    """

    request_count: int = 10_000
    sessions_per_s: float = 0.7
    turn_count: Spread = Spread(5, 0.6, highest=40)
    system_prompts: int = 4
    system_tokens: Spread = Spread(1_500, 0.5)
    question_tokens: Spread = Spread(1_200, 1.1, highest=60_000)
    output_tokens: Spread = Spread(300, 0.6, highest=4_000)
    pause_s: Spread = Spread(60, 0.9, lowest=3)

    def requests(self, seed: int = 0) -> list[Request]:
        """In order of arrival; the same for the same seed."""
        random = Random(seed)
        root = Context()
        systems = [root.fork() for _ in range(self.system_prompts)]
        for system in systems:
            system.grow(self.system_tokens.draw_tokens(random))
        made: list[Request] = []
        later: list[float] = []  # arrivals after the start of the session at hand; a heap
        for start in arrivals(random, self.sessions_per_s):
            while later and later[0] <= start:
                heapq.heappop(later)
            # Sessions begin in order, so once enough requests lie before this one, later sessions add none of them.
            if len(made) - len(later) >= self.request_count:
                return in_order(made, self.request_count)
            session = self._session(random, random.choice(systems).fork(), start)
            made.extend(session)
            for request in session:
                heapq.heappush(later, request.arrival_s)
        raise AssertionError("arrivals end never")

    def _session(self, random: Random, context: Context, now: float) -> list[Request]:
        turns = []
        for _ in range(self.turn_count.draw_tokens(random)):
            context.grow(self.question_tokens.draw_tokens(random))
            output = self.output_tokens.draw_tokens(random)
            turns.append(context.ask(now, output))
            context.grow(output)
            now += self.pause_s.draw(random)
        return turns
