"""Agents: long tasks over one growing prompt, which fork into branches and pause for tools."""

from __future__ import annotations

from random import Random

import msgspec

from moonpool.sim.trace import Request
from moonpool.sim.workloads.context import Context, Spread, arrivals, in_order


class Agentic(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of about 30 turns that end with a prompt of up to 80k tokens.

    A turn's answer calls a tool; after a pause its output is appended and the next turn comes. Now and then an agent
    forks its prompt into up to 16 branches, which explore for a few turns side by side; when the last is done the
    agent goes on with what they report. Pauses include what an answer takes.
    """

    request_count: int = 10_000
    tasks_per_s: float = 0.05
    turn_count: int = 30
    prompt_tokens_max: int = 80_000
    system_tokens: int = 12_000
    task_tokens: Spread = Spread(2_000, 0.8)
    tool_tokens: Spread = Spread(1_500, 0.9, highest=20_000)
    output_tokens: Spread = Spread(250, 0.7, highest=4_000)
    tool_pause_s: Spread = Spread(8, 1.0, lowest=0.5, highest=600)
    fork_share: float = 0.08
    branch_count_max: int = 16
    branch_turns: int = 4
    instruction_tokens: int = 150
    report_tokens: int = 400

    def requests(self, seed: int = 0) -> list[Request]:
        """In order of arrival; the same for the same seed."""
        random = Random(seed)
        system = Context()
        system.grow(self.system_tokens)
        made: list[Request] = []
        for start in arrivals(random, self.tasks_per_s):
            if len(made) >= self.request_count and sum(r.arrival_s <= start for r in made) >= self.request_count:
                return in_order(made, self.request_count)
            made.extend(self._task(random, system.fork(), start))
        raise AssertionError("arrivals end never")

    def _task(self, random: Random, context: Context, now: float) -> list[Request]:
        made: list[Request] = []
        context.grow(self.task_tokens.draw_tokens(random))
        for _ in range(self.turn_count):
            now = self._turn(random, context, made, now=now)
            if random.random() < self.fork_share:
                now = self._branches(random, context, made, now=now)
        return made

    def _turn(self, random: Random, context: Context, made: list[Request], *, now: float) -> float:
        """Asks unless the prompt is full, and appends answer and tool output. Returns when the next turn comes."""
        if context.tokens > self.prompt_tokens_max:
            return now
        output = self.output_tokens.draw_tokens(random)
        made.append(context.ask(now, output))
        context.grow(output + self.tool_tokens.draw_tokens(random))
        return now + self.tool_pause_s.draw(random)

    def _branches(self, random: Random, context: Context, made: list[Request], *, now: float) -> float:
        """Forks, lets each branch explore, appends their reports. Returns when the last has reported."""
        branch_count = random.randint(2, self.branch_count_max)
        ends = []
        for _ in range(branch_count):
            branch, moment = context.fork(), now
            branch.grow(self.instruction_tokens)
            for _ in range(random.randint(1, self.branch_turns)):
                moment = self._turn(random, branch, made, now=moment)
            ends.append(moment)
        context.grow(branch_count * self.report_tokens)
        return max(ends)
