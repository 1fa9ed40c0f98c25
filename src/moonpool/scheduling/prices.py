"""What tokens cost: meters (hit, miss, output) by time windows, in decimals.

As public price lists have it: input that hit a cache is cheaper than input that missed it, there are peak and off-peak
hours in the seller's time zone, and a list holds from its effective date until the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from zoneinfo import ZoneInfo

from moonpool.errors import UsageError

TOKENS_PER_PRICE = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or of many at one time."""

    hit_tokens: int
    miss_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Rates:
    """The price of a million tokens on each meter."""

    hit: Decimal
    miss: Decimal
    output: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Exact; rounding is left to who writes the bill."""
        total = self.hit * usage.hit_tokens + self.miss * usage.miss_tokens + self.output * usage.output_tokens
        return total / TOKENS_PER_PRICE


@dataclass(frozen=True, slots=True)
class Window:
    """Daily hours of other rates, from `start` up to but not including `end`; over midnight if `end` is not later."""

    start: time
    end: time
    rates: Rates

    def holds_at(self, moment: time) -> bool:
        """Whether this wall-clock time lies inside. Equal start and end mean the whole day."""
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


@dataclass(frozen=True, slots=True)
class PriceList:
    """Rates from `effective` (an aware date and time) on: the first window that holds, else the standard rates."""

    effective: datetime
    standard: Rates
    windows: tuple[Window, ...] = ()
    zone: str = "UTC"
    _clock: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises UsageError for a date without a zone and for a zone that does not exist."""
        _check_aware(self.effective)
        try:
            object.__setattr__(self, "_clock", ZoneInfo(self.zone))
        except (KeyError, ValueError, OSError) as error:
            raise UsageError(f"no time zone {self.zone!r}: a name such as Asia/Shanghai expected") from error

    def rates_at(self, moment: datetime) -> Rates:
        """The rates of this moment, by the seller's wall clock."""
        wall = moment.astimezone(self._clock).time()
        return next((window.rates for window in self.windows if window.holds_at(wall)), self.standard)


class Prices:
    """Price lists that follow each other."""

    def __init__(self, lists: Sequence[PriceList]) -> None:
        self._lists = sorted(lists, key=lambda item: item.effective)
        dates = [item.effective for item in self._lists]
        if not dates or len(set(dates)) != len(dates):
            raise UsageError(f"{len(dates)} price lists, some from the same moment on: at least one, all different")

    def rates_at(self, moment: datetime) -> Rates:
        """Raises UsageError before the first list, and for a moment without a time zone."""
        _check_aware(moment)
        held = [item for item in self._lists if item.effective <= moment]
        if not held:
            raise UsageError(
                f"no price list holds at {moment.isoformat()}: the first is from {self._lists[0].effective}"
            )
        return held[-1].rates_at(moment)

    def cost(self, usage: Usage, moment: datetime) -> Decimal:
        """What this usage costs, all of it at the rates of this moment."""
        return self.rates_at(moment).cost(usage)


def _check_aware(moment: datetime) -> None:
    if moment.tzinfo is None:
        raise UsageError(f"{moment.isoformat()} has no time zone: say which, as in 2026-01-01T00:00+00:00")
