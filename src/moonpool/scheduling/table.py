"""A measured table with linear interpolation."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from moonpool.errors import UsageError


class Grid:
    """``values[i][j]`` at ``rows[i]``, ``columns[j]``; bilinear between, the last slope beyond."""

    def __init__(self, rows: Sequence[float], columns: Sequence[float], values: Sequence[Sequence[float]]) -> None:
        for name, axis in (("rows", rows), ("columns", columns)):
            if not axis or any(a >= b for a, b in itertools.pairwise(axis)):
                raise UsageError(f"the {name} of a table must be given, and must rise: {list(axis)}")
        if len(values) != len(rows) or any(len(row) != len(columns) for row in values):
            raise UsageError(f"a table of {len(rows)} rows and {len(columns)} columns needs as many values")
        self._rows = list(rows)
        self._columns = list(columns)
        self._values = [list(row) for row in values]

    def value(self, row: float, column: float) -> float:
        """The value at any point."""
        low, row_share = _between(self._rows, row)
        left, column_share = _between(self._columns, column)
        near = _line(self._values[low], left, column_share)
        if row_share == 0.0:
            return near
        return near + row_share * (_line(self._values[low + 1], left, column_share) - near)


def _between(axis: list[float], at: float) -> tuple[int, float]:
    """Index of the segment and the place in it (0…1 inside, else beyond). A single point is constant."""
    if len(axis) == 1:
        return 0, 0.0
    index = min(max(bisect.bisect_right(axis, at) - 1, 0), len(axis) - 2)
    return index, (at - axis[index]) / (axis[index + 1] - axis[index])


def _line(values: list[float], index: int, share: float) -> float:
    if share == 0.0:
        return values[index]
    return values[index] + share * (values[index + 1] - values[index])
