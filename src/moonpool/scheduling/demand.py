"""How much work comes in, how many workers that keeps busy, and how it will go on.

The arithmetic of throughput planners such as Dynamo's: work a second over what one worker does within the objectives,
corrected by what was observed against what was expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from moonpool.errors import UsageError
from moonpool.scheduling.costs import Costs

VALUE_MAX = 1e12  # a forecast believes no larger measurement
INTERVAL_SECONDS_MIN = 1e-3  # between two measurements that show a trend
CORRECTION_MAX = 3.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What came in a second in the last interval, and the mean request."""

    requests_per_second: float
    input_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """What requests met in the last interval; None where nothing was measured."""

    ttft_ratio: float | None = None
    """Observed over expected TTFT."""
    tbt_ratio: float | None = None
    """Observed over expected time between tokens."""


@dataclass(frozen=True, slots=True)
class Need:
    """Workers that would be busy all the time, as fractions: a load, not yet a count."""

    prefill: float
    decode: float


def need_of(demand: Demand, costs: Costs, *, tbt_seconds: float, observed: Observed | None = None) -> Need:
    """What this demand keeps busy. No demand needs nothing.

    Args:
        demand: of the interval that is planned for.
        costs: of one worker of each kind.
        tbt_seconds: the objective; decode workers batch as much as it allows.
        observed: corrects both; ratios are trusted between a third and three.
    """
    rate = demand.requests_per_second
    if not rate > 0 or not math.isfinite(rate):
        return Need(0.0, 0.0)
    seen = Observed() if observed is None else observed
    prefill_seconds = costs.prefill.seconds(round(demand.input_tokens), round(demand.cached_tokens))
    context = round(demand.input_tokens + demand.output_tokens / 2)
    allowed_seconds = tbt_seconds / _trusted(seen.tbt_ratio)
    return Need(
        prefill=rate * prefill_seconds * max(1.0, _trusted(seen.ttft_ratio)),
        decode=rate * demand.output_tokens / _tokens_per_second(costs, context, allowed_seconds),
    )


def split(worker_count: int, need: Need) -> tuple[int, int]:
    """Prefill and decode workers out of so many, at least one of each, so that the busier kind is least busy."""
    if worker_count < 2:
        raise UsageError(f"{worker_count} workers cannot be split: at least 2 expected")

    def busiest(prefill: int) -> float:
        return max(need.prefill / prefill, need.decode / (worker_count - prefill))

    even = worker_count // 2  # where nothing is needed, and between equals
    prefill = min(range(1, worker_count), key=lambda count: (busiest(count), abs(count - even)))
    return prefill, worker_count - prefill


def worth_switching(current: tuple[int, int], need: Need, *, gain: float = 0.2) -> bool:
    """Whether changing roles lowers the load of the busier kind by more than `gain`: only on large shifts."""

    def busiest(prefill: int, decode: int) -> float:
        return max(need.prefill / max(prefill, 1e-9), need.decode / max(decode, 1e-9))

    now = busiest(*current)
    return now > 0 and busiest(*split(sum(current), need)) < (1 - gain) * now


class Forecast:
    """Level and trend by exponential smoothing (Holt); gaps in the measurements are waited out.

    A constant series is forecast exactly. Never below zero, and never beyond twice the highest of the two last values.
    """

    def __init__(self, *, level_weight: float = 0.5, trend_weight: float = 0.2) -> None:
        self._weights = (level_weight, trend_weight)
        self._level: float | None = None
        self._trend = 0.0  # a second
        self._last = 0.0
        self._at_seconds = 0.0

    def observe(self, value: float, now_seconds: float) -> None:
        """A measurement; one that is absurd, comes from the past, or too soon for a trend, is not believed."""
        elapsed = now_seconds - self._at_seconds
        if not 0.0 <= value <= VALUE_MAX or (self._level is not None and elapsed < INTERVAL_SECONDS_MIN):
            return
        if self._level is None:
            self._level = value
        else:
            level_weight, trend_weight = self._weights
            level = level_weight * value + (1 - level_weight) * self._bounded(self._level, elapsed)
            self._trend += trend_weight * ((level - self._level) / elapsed - self._trend)
            self._level = level
        self._last, self._at_seconds = value, now_seconds

    def ahead(self, seconds: float) -> float | None:
        """What will be measured so long after the last measurement; None before the first."""
        return None if self._level is None else self._bounded(self._level, seconds)

    def _bounded(self, level: float, seconds: float) -> float:
        return min(max(level + self._trend * seconds, 0.0), 2 * max(level, self._last))


def _trusted(ratio: float | None) -> float:
    if ratio is None or not math.isfinite(ratio) or ratio <= 0:
        return 1.0
    return min(max(ratio, 1 / CORRECTION_MAX), CORRECTION_MAX)


def _tokens_per_second(costs: Costs, context: int, tbt_seconds: float) -> float:
    """Of one decode worker with the largest batch within the objective, or with one request if none is."""
    batch = 1
    while costs.decode.tbt_seconds(batch + 1, (batch + 1) * context) <= tbt_seconds:
        batch += 1
    return batch / costs.decode.tbt_seconds(batch, batch * context)
