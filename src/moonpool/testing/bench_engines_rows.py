"""Measured numbers with the target beside each, as a table and as JSON lines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

PLAIN_WIDTH = 160  # where there is no terminal whose width could be asked


def screen() -> Console:
    """The standard output, wide enough for the tables also when it is a file or a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One number. `target` is an upper bound, unless `at_least`; None: shown for comparison."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    noise: float | None = None  # two standard errors, in the same unit
    count: int = 0  # measurements behind the value
    remark: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one. Not a number meets nothing."""
        if self.target is None:
            return None
        if math.isnan(self.value):
            return False
        return self.value >= self.target if self.at_least else self.value <= self.target


def median_row(name: str, values: Sequence[float], *, unit: str = "ms", target: float | None = None) -> Row:
    """The median of some measurements, with the noise of their mean beside it."""
    if not values:
        return Row(name=name, value=math.nan, unit=unit, target=target, remark="nothing was measured")
    noise = 2 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Row(name=name, value=statistics.median(values), unit=unit, target=target, noise=noise, count=len(values))


def print_rows(console: Console, rows: Sequence[Row], *, title: str) -> None:
    """The table."""
    table = Table(title=title, title_justify="left")
    for column, justify in (("name", "left"), ("value", "right"), ("unit", "left"), ("target", "right")):
        table.add_column(column, justify="right" if justify == "right" else "left", overflow="fold")
    for column in ("met", "noise", "n", "remark"):
        table.add_column(column)
    for row in rows:
        target = "" if row.target is None else f"{'>=' if row.at_least else '<='} {row.target:g}"
        met = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[row.met]
        noise = "" if row.noise is None else f"+/- {row.noise:.3g}"
        table.add_row(row.name, f"{row.value:.4g}", row.unit, target, met, noise, str(row.count or ""), row.remark)
    console.print(table)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """One JSON object a line; a value that was not measured is null."""
    lines = []
    for row in rows:
        plain = msgspec.to_builtins(row)
        plain["value"] = None if math.isnan(row.value) else row.value
        lines.append(json.dumps({**plain, "met": row.met}))
    path.write_text("\n".join(lines) + "\n")
