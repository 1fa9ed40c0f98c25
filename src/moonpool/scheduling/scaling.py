"""How many workers of one kind there shall be, and what to do about it now: a state machine without a clock.

Growing is at once; shrinking waits until a smaller size has been enough, with a margin, for a whole cool-down. That
margin is why a constant load never makes it go back and forth between two sizes: what it shrinks to is at least what
it would grow to. What is missing (metrics, machines to run on) is waited out and never holds up the rest.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from moonpool.errors import UsageError
from moonpool.scheduling.demand import Forecast


class Why(enum.Enum):
    """What the planner acted on."""

    STEADY = "steady"
    GROW = "grow"  # the forecast needs more
    SHRINK = "shrink"  # less was enough for a whole cool-down
    WAIT = "wait"  # less would do, but not yet for long enough
    NO_METRICS = "no_metrics"  # nothing is known of the load: the target stays
    UNSCHEDULABLE = "unschedulable"  # starting took too long: it is given up for a while


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Of one kind of worker."""

    count_min: int = 1
    count_max: int = 64
    utilisation: float = 0.75
    """Share of the time that a worker shall be busy: the rest is for bursts."""
    margin: float = 0.15
    """A smaller size must bear so much more than the load before it is chosen."""
    cool_down_seconds: float = 300.0
    start_seconds: float = 120.0
    """How long a worker takes to start: the forecast looks so far ahead."""
    start_deadline_seconds: float = 600.0
    """Pending workers older than this are unschedulable."""
    retry_seconds: float = 600.0
    """Until starting is tried again after that; doubles up to eight times as long."""

    def check(self) -> None:
        """Raises UsageError for what makes no sense."""
        if not 0 <= self.count_min <= self.count_max or self.count_max < 1:
            raise UsageError(f"from {self.count_min} to {self.count_max} workers: no range")
        if not 0 < self.utilisation <= 1 or self.margin < 0:
            raise UsageError(f"utilisation {self.utilisation:g} and margin {self.margin:g}: within 0 and 1 expected")


@dataclass(frozen=True, slots=True)
class Replicas:
    """What there is. Draining workers finish what they have and take nothing new; they are no capacity."""

    ready: int = 0
    pending: int = 0
    draining: int = 0
    pending_seconds: float = 0.0
    """For how long the oldest pending one has been so."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now. `target` is what the load asks for; the rest are orders, all zero when things are in order."""

    target: int
    add: int
    cancel: int
    drain: int
    undrain: int
    why: Why


RETRY_DOUBLINGS_MAX = 3


class ScalingPlanner:
    """Decides for one kind of worker; call `step` once an interval."""

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.settings = ScalingSettings() if settings is None else settings
        self.settings.check()
        self._forecast = Forecast()
        self._target: int | None = None
        self._low_since_seconds: float | None = None
        self._low_most = 0  # the most that was needed since then
        self._ceiling: int | None = None  # no more than this can be had, until …
        self._retry_at_seconds = 0.0
        self._failure_count = 0

    def step(self, now_seconds: float, need: float | None, replicas: Replicas) -> Step:
        """What to do now.

        Args:
            now_seconds: any clock that does not go back.
            need: how many workers the load keeps fully busy (`moonpool.scheduling.demand`); None if that is unknown.
            replicas: what there is at this moment.
        """
        if self._target is None:
            self._target = self._clamp(replicas.ready + replicas.pending)
        why = self._aim(now_seconds, need)
        if replicas.pending and replicas.pending_seconds >= self.settings.start_deadline_seconds:
            self._give_up(now_seconds, replicas)
            why = Why.UNSCHEDULABLE
        return self._order(now_seconds, replicas, why)

    def _aim(self, now_seconds: float, need: float | None) -> Why:
        assert self._target is not None
        if need is None or not math.isfinite(need) or need < 0:
            self._low_since_seconds = None  # nothing says that less has been enough meanwhile
            return Why.NO_METRICS
        self._forecast.observe(need, now_seconds)
        expected = max(need, self._forecast.ahead(self.settings.start_seconds) or 0.0)
        enough = self._clamp(math.ceil(expected / self.settings.utilisation))
        ample = self._clamp(math.ceil(expected * (1 + self.settings.margin) / self.settings.utilisation))
        if enough > self._target:
            self._target, self._low_since_seconds = enough, None
            return Why.GROW
        if ample >= self._target:
            self._low_since_seconds = None
            return Why.STEADY
        if self._low_since_seconds is None:
            self._low_since_seconds, self._low_most = now_seconds, ample
        self._low_most = max(self._low_most, ample)
        if now_seconds - self._low_since_seconds < self.settings.cool_down_seconds:
            return Why.WAIT
        self._target, self._low_since_seconds = self._low_most, None
        return Why.SHRINK

    def _give_up(self, now_seconds: float, replicas: Replicas) -> None:
        self._ceiling = replicas.ready + replicas.draining
        wait_seconds = self.settings.retry_seconds * 2 ** min(self._failure_count, RETRY_DOUBLINGS_MAX)
        self._retry_at_seconds = now_seconds + wait_seconds
        self._failure_count += 1

    def _order(self, now_seconds: float, replicas: Replicas, why: Why) -> Step:
        assert self._target is not None
        if self._ceiling is not None and replicas.ready > self._ceiling:
            self._ceiling, self._failure_count = None, 0  # one did start
        aim = self._target
        if self._ceiling is not None and now_seconds < self._retry_at_seconds:
            aim = min(aim, self._ceiling)
        have = replicas.ready + replicas.pending
        missing, surplus = max(aim - have, 0), max(have - aim, 0)
        undrain = min(missing, replicas.draining)
        cancel = min(surplus, replicas.pending)
        return Step(
            target=self._target,
            add=missing - undrain,
            cancel=cancel,
            drain=surplus - cancel,
            undrain=undrain,
            why=why,
        )

    def _clamp(self, count: int) -> int:
        return min(max(count, self.settings.count_min), self.settings.count_max)
