"""A continuous batch: requests join and leave between steps, and every member gets one token a step."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable
from math import ceil, floor, sqrt

StepSeconds = Callable[[int, int], float]  # (requests in the batch, their KV tokens) → seconds of one step


class Member:
    """One request that decodes: `intervals` tokens are still to come after the first one."""

    __slots__ = ("finish_step", "first_gap", "first_token_at", "index", "intervals", "joined_segment", "kv_tokens")

    def __init__(self, index: int, *, kv_tokens: int, intervals: int, first_token_at: float) -> None:
        self.index = index  # of the request, in the run
        self.kv_tokens = kv_tokens  # when it joins
        self.intervals = intervals
        self.first_token_at = first_token_at
        self.first_gap = 0.0  # between the first token and the second: waiting and moving KV count
        self.finish_step = 0
        self.joined_segment = 0


class ContinuousBatch:
    """The pace of a batch, in stretches without joins and leaves ("segments"), so that a token costs no event.

    Within a segment the KV grows by one token a member and step, so step times grow evenly (exactly, for a step model
    that is linear in KV tokens, as §1.9's is). Times are the caller's: nothing here knows the clock.
    """

    def __init__(self, step_seconds: StepSeconds) -> None:
        self._step_seconds = step_seconds
        self._members: list[tuple[int, int, Member]] = []  # heap by the step of the last token
        self._newcomers: list[Member] = []
        self._gaps = array("d")  # of the segments so far: seconds between two tokens …
        self._counts = array("q")  # … and how many such gaps
        self._order = 0
        self._steps = 0
        self._start = self._first = self._growth = self._stall = 0.0
        self.kv_tokens = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def steps_to_next_leave(self) -> int:
        """Steps from the start of this segment until a member has its last token. The batch must not be empty."""
        return self._members[0][0] - self._steps

    def join(self, member: Member) -> None:
        """Take a member in; between segments only."""
        self._order += 1
        member.finish_step = self._steps + member.intervals
        member.joined_segment = len(self._gaps)
        self.kv_tokens += member.kv_tokens
        heapq.heappush(self._members, (member.finish_step, self._order, member))
        self._newcomers.append(member)

    def resume(self, now: float, *, extra_seconds: float = 0.0, stall_seconds: float = 0.0) -> None:
        """Start a segment. Each of its steps takes `extra_seconds` more than decoding does (a chunk of a prompt);
        `stall_seconds` are behind us, and those who were here before waited that much longer for their next token.
        """
        count = len(self._members)
        step = self._step_seconds
        plain = step(count, self.kv_tokens) if count else 0.0
        self._growth = step(count, self.kv_tokens + count) - plain if count else 0.0
        self._first = plain + extra_seconds
        self._start = now
        self._stall = stall_seconds
        for member in self._newcomers:
            member.first_gap = now + self._first - member.first_token_at
        self._newcomers.clear()

    def end_of_step(self, count: int) -> float:
        """When that many steps of this segment are over."""
        return self._start + count * self._first + self._growth * (count * (count - 1) / 2)

    def next_boundary(self, now: float) -> int:
        """The first step of this segment, counted from one, that ends at `now` or later."""
        elapsed = now - self._start
        if self._growth <= 0.0:
            done = elapsed / self._first
        else:  # solve elapsed = n·first + growth·n(n-1)/2
            linear = self._first - self._growth / 2
            done = (sqrt(linear * linear + 2 * self._growth * elapsed) - linear) / self._growth
        count = max(1, floor(done))
        while self.end_of_step(count) < now:
            count += 1
        return count

    def pause(self, step_count: int) -> list[Member]:
        """End the segment after that many steps. Returns who got the last token with the last of them."""
        duration = self.end_of_step(step_count) - self._start
        if self._members:
            if self._stall:
                self._log(self._stall + self._first, 1)
                self._log((duration - self._first) / max(1, step_count - 1), step_count - 1)
            else:
                self._log(duration / step_count, step_count)
        self._steps += step_count
        self.kv_tokens += step_count * len(self._members)
        done: list[Member] = []
        while self._members and self._members[0][0] <= self._steps:
            member = heapq.heappop(self._members)[2]
            self.kv_tokens -= member.kv_tokens + member.intervals
            done.append(member)
        return done

    def _log(self, gap_seconds: float, count: int) -> None:
        self._gaps.append(gap_seconds)
        self._counts.append(count)

    def worst_tenth_mean(self, member: Member) -> float:
        """The mean of the longest 10 % of the member's token intervals: the papers' TBT (FAST'25 §5.1), in seconds."""
        return worst_tenth(
            member.first_gap,
            self._gaps[member.joined_segment :],
            self._counts[member.joined_segment :],
            interval_count=member.intervals,
        )

    def clear(self) -> list[Member]:
        """Lose everybody (the engine died). Returns who was there, in order of joining."""
        lost = [member for _, _, member in sorted(self._members, key=lambda entry: entry[1])]
        self._members.clear()
        self._newcomers.clear()
        self.kv_tokens = 0
        return lost


def worst_tenth(first_gap: float, gaps: array[float], counts: array[int], *, interval_count: int) -> float:
    """Mean of the longest tenth (at least one) of `interval_count` gaps.

    The first of them is `first_gap`; it stands in for the first gap of the first segment, which the others of the
    batch had. The rest come in runs: `counts[i]` gaps of `gaps[i]` seconds each.
    """
    if interval_count <= 0:
        return 0.0
    wanted = left = ceil(interval_count / 10)
    counts[0] -= 1
    runs = sorted(zip(gaps, counts, strict=True), reverse=True)
    total = 0.0
    is_counted = False
    for gap, count in runs:
        if not is_counted and first_gap >= gap:
            is_counted = True
            total += first_gap
            left -= 1
            if left == 0:
                break
        taken = min(left, count)
        total += taken * gap
        left -= taken
        if left == 0:
            break
    return (total + left * first_gap) / wanted
