"""What is measured together, and the bar of each row. Every module of rows declares its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from moonpool.testing.bench.measure import Row
from moonpool.testing.bench.stage import Stage


class Bar(msgspec.Struct, frozen=True):
    """What a row has to reach: its value or its ratio to the machine's limit, at least or at most so much."""

    of: Literal["value", "ratio"]
    sense: Literal["at least", "at most"]
    number: float

    def reached_by(self, measured: Row) -> bool | None:
        """None where the row has no such number."""
        found = measured.value if self.of == "value" else measured.ratio
        if found is None:
            return None
        return found >= self.number if self.sense == "at least" else found <= self.number

    def __str__(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        return f"{sign} {self.number:,.10g}" + (" of the limit" if self.of == "ratio" else "")


class Topic(msgspec.Struct, frozen=True):
    """Rows that are measured together. bars: the names of all of them in their order; None: a row without a bar."""

    title: str
    bars: Mapping[str, Bar | None]
    rows: Callable[[Stage], Iterator[Row]]

    def judged(self, stage: Stage) -> Iterator[Row]:
        """The rows, each with its bar. AssertionError for a row that was not declared."""
        for measured in self.rows(stage):
            assert measured.name in self.bars, f"the topic {self.title!r} does not declare {measured.name}"
            bar = self.bars[measured.name]
            yield msgspec.structs.replace(
                measured, bar=str(bar) if bar else None, reached=bar.reached_by(measured) if bar else None
            )


def ratio_at_least(number: float) -> Bar:
    """Of a rate beside the machine's own."""
    return Bar("ratio", "at least", number)


def ratio_at_most(number: float) -> Bar:
    """Of a time beside the machine's own."""
    return Bar("ratio", "at most", number)


def value_at_least(number: float) -> Bar:
    """In the unit of the row."""
    return Bar("value", "at least", number)


def value_at_most(number: float) -> Bar:
    """In the unit of the row."""
    return Bar("value", "at most", number)
