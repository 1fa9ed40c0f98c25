"""A published table beside ours: rows with difference and verdict, and what could not be reproduced, and why."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from itertools import pairwise


class Basis(enum.Enum):
    """Where our number comes from. It belongs beside every verdict: a fit to the same table proves little."""

    SIMULATED = "simulated"
    COMPUTED = "computed"  # from a formula of the paper
    FITTED = "fitted"  # the model's coefficients come from this very table
    STAND_IN = "stand-in"  # the trace is not published; ours is made from its statistics


class Verdict(enum.Enum):
    """What the difference means."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NO_MATCH_EXPECTED = "shown, not claimed"
    ONLY_OURS = "no published value"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number. `tolerance` is relative, in points where the unit is `%`; None: no match is claimed, see `why`."""

    what: str
    ours: float
    theirs: float | None
    unit: str
    tolerance: float | None
    basis: Basis = Basis.SIMULATED
    why: str = ""

    @property
    def difference(self) -> float:
        """Relative to theirs; in points where the unit is `%`. NaN where theirs is unknown."""
        if self.theirs is None:
            return math.nan
        return self.ours - self.theirs if self.unit == "%" else self.ours / self.theirs - 1.0

    @property
    def verdict(self) -> Verdict:
        """See `Verdict`."""
        if self.theirs is None:
            return Verdict.ONLY_OURS
        if self.tolerance is None:
            return Verdict.NO_MATCH_EXPECTED
        return Verdict.AGREES if abs(self.difference) <= self.tolerance else Verdict.DIFFERS


@dataclass(frozen=True)
class Check:
    """A statement about the whole table, such as an order of rows, and whether it holds in ours."""

    statement: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Table:
    """One figure or table of a paper. `setup` says what we ran; `definition` what a hit rate or a TBT means in it."""

    name: str
    title: str
    setup: str
    definition: str = ""
    rows: tuple[Row, ...]
    checks: tuple[Check, ...] = ()
    limits: tuple[str, ...] = field(default=())  # what is not reproduced, and why

    @property
    def agrees(self) -> bool:
        """Whether all that is claimed holds."""
        return all(row.verdict is not Verdict.DIFFERS for row in self.rows) and all(
            check.holds for check in self.checks
        )


def is_falling(values: list[float]) -> bool:
    """Whether each value is below the one before."""
    return all(after < before for before, after in pairwise(values))
