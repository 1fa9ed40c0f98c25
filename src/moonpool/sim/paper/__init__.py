"""The papers' tables, reproduced: ours beside theirs, with difference and verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from moonpool.errors import UsageError
from moonpool.sim.paper.formulas import deepseek, eq2, fig14
from moonpool.sim.paper.hits import fig9, table1
from moonpool.sim.paper.overload import rejections
from moonpool.sim.paper.prefill import fig5, fig8, fig10, fig13
from moonpool.sim.paper.serving import capacity, fig15, requests75
from moonpool.sim.paper.tables import Basis, Check, Row, Table, Verdict

__all__ = ["EXPERIMENTS", "Basis", "Check", "Row", "Table", "Verdict", "reproduce"]

EXPERIMENTS: dict[str, Callable[[], Table]] = {
    "eq2": eq2,
    "fig14": fig14,
    "fig5": fig5,
    "fig8": fig8,
    "fig9": fig9,
    "fig10": fig10,
    "fig13": fig13,
    "fig15": fig15,
    "table1": table1,
    "rejections": rejections,
    "capacity": capacity,
    "requests75": requests75,
    "deepseek": deepseek,
}


def reproduce(names: Sequence[str] = (), *, progress: Callable[[str], None] = lambda text: None) -> Iterator[Table]:
    """The tables of those names, or all, one after the other; `progress` is told what is being made.

    Raises:
        UsageError: there is no table of that name; nothing has been made then.
    """
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise UsageError(f"no table {unknown[0]!r}: one of {', '.join(EXPERIMENTS)} expected")
    return _made(names or tuple(EXPERIMENTS), progress)


def _made(names: Sequence[str], progress: Callable[[str], None]) -> Iterator[Table]:
    for number, name in enumerate(names, start=1):
        progress(f"{name} ({number} of {len(names)})")
        yield EXPERIMENTS[name]()
