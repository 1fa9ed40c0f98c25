"""Reproduced tables as text: cells for a terminal, Markdown for the documentation, plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from moonpool.sim.paper.tables import Row, Table

COLUMNS = ("", "ours", "theirs", "difference", "basis", "verdict")


def cells(row: Row) -> tuple[str, ...]:
    """One row, in the order of `COLUMNS`."""
    theirs = "-" if row.theirs is None else value(row.theirs, row.unit)
    return row.what, value(row.ours, row.unit), theirs, difference(row), row.basis.value, row.verdict.value


def value(number: float, unit: str) -> str:
    """Three or four significant digits, and the unit."""
    text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}" if abs(number) >= 100 else f"{number:.3g}"
    return f"{text} {unit}".rstrip()


def difference(row: Row) -> str:
    """In points where the unit is `%`, else in percent of theirs."""
    if math.isnan(row.difference):
        return "-"
    return f"{row.difference:+.1f} points" if row.unit == "%" else f"{100 * row.difference:+.1f} %"


def remarks(table: Table) -> Iterator[str]:
    """What stands under a table: checks, definitions, reasons, limits."""
    for check in table.checks:
        yield f"{'holds' if check.holds else 'DOES NOT HOLD'}: {check.statement}"
    yield f"ours: {table.setup}"
    if table.definition:
        yield f"definition: {table.definition}"
    for why in dict.fromkeys(row.why for row in table.rows if row.why):
        yield f"shown, not claimed: {why}"
    for limit in table.limits:
        yield f"not reproduced: {limit}"


def as_markdown(table: Table) -> Iterator[str]:
    """A section of a page."""
    yield f"## {table.title}"
    yield ""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---|---:|---:|---:|---|---|"
    for row in table.rows:
        yield "| " + " | ".join(cells(row)) + " |"
    yield ""
    for remark in remarks(table):
        yield f"- {remark}"
    yield ""


def as_values(table: Table) -> dict[str, Any]:
    """For JSON. A difference that does not exist is null."""
    return {
        "name": table.name,
        "title": table.title,
        "setup": table.setup,
        "definition": table.definition,
        "agrees": table.agrees,
        "rows": [
            {
                "what": row.what,
                "ours": row.ours,
                "theirs": row.theirs,
                "unit": row.unit,
                "difference": None if math.isnan(row.difference) else row.difference,
                "tolerance": row.tolerance,
                "basis": row.basis.value,
                "verdict": row.verdict.value,
                "why": row.why,
            }
            for row in table.rows
        ],
        "checks": [{"statement": check.statement, "holds": check.holds} for check in table.checks],
        "limits": list(table.limits),
    }
