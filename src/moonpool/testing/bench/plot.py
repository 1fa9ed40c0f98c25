"""All rows that have a limit or a bar as one SVG: how much of the bar each one reaches."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from moonpool.testing.bench.measure import Row

WIDTH, ROW_HEIGHT, TOP = 960, 22, 46
NAME_WIDTH, VALUE_WIDTH = 290, 250
SHARE_MAX = 2.0  # of the limit: where a bar ends although its value goes on
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333; } .reached { fill: #2c8a4b; } .missed { fill: #d9651a; }
.none { fill: #1668b8; } .mark { stroke: #333; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .mark { stroke: #ddd; } }
"""


def picture(rows: Sequence[Row]) -> str:
    """The SVG. Each row is its ratio to the machine's own limit; rows without a limit are not shown."""
    shown = [(measured, measured.ratio) for measured in rows if measured.ratio is not None]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {TOP + ROW_HEIGHT * len(shown) + 10}">',
        f"<style>{STYLE}</style>",
        _text(10, 18, "moonpool bench: value / this machine's own limit in the same run"),
        _text(10, 36, "green: the bar is reached; orange: it is not; blue: no bar. Dashed: the limit"),
    ]
    for number, (measured, ratio) in enumerate(shown):
        parts.append(_row(measured, ratio, top=TOP + number * ROW_HEIGHT))
    limit = _across(1.0)
    bottom = TOP + ROW_HEIGHT * len(shown)
    parts.append(f'<line class="mark" x1="{limit:.1f}" y1="{TOP}" x2="{limit:.1f}" y2="{bottom}"/></svg>\n')
    return "".join(parts)


def _row(measured: Row, ratio: float, *, top: int) -> str:
    kind = {None: "none", True: "reached", False: "missed"}[measured.reached]
    width = _across(min(ratio, SHARE_MAX)) - NAME_WIDTH
    value = f"{measured.value:,.3g}" if measured.value < 1_000 else f"{measured.value:,.0f}"
    words = f"{value} {measured.unit}, {ratio:.2f} of it" + (f", bar {measured.bar}" if measured.bar else "")
    return (
        _text(10, top + 15, measured.name)
        + f'<rect class="{kind}" x="{NAME_WIDTH}" y="{top + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 6}"/>'
        + _text(WIDTH - VALUE_WIDTH + 6, top + 15, words)
    )


def _across(share: float) -> float:
    return NAME_WIDTH + share / SHARE_MAX * (WIDTH - NAME_WIDTH - VALUE_WIDTH)


def _text(left: float, top: float, words: str) -> str:
    return f'<text x="{left}" y="{top}">{escape(words)}</text>'
