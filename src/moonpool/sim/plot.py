"""Plots as inline SVG: lines over two axes, and heat maps. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 44
POINTS_MAX = 400
SERIES_COLOURS = 4
ROWS_MAX, COLUMNS_MAX = 64, 160


class Series(msgspec.Struct, frozen=True):
    """One line: its name in the legend, and points in order of x."""

    name: str
    points: Sequence[tuple[float, float]]


class Axes(msgspec.Struct, frozen=True, kw_only=True):
    """What the axes are called, and whether x is logarithmic. `y_max` fixes the top of y."""

    x: str
    y: str
    logarithmic: bool = False
    y_max: float | None = None
    marks: tuple[tuple[float, str], ...] = ()
    """Vertical lines: where, and what is written there."""


def cumulative(values: Sequence[float]) -> list[tuple[float, float]]:
    """The empirical distribution, thinned to what a screen can show: (value, share of values up to it)."""
    ordered = sorted(values)
    count = len(ordered)
    step = max(1, count // POINTS_MAX)
    places = [*range(0, count, step), count - 1] if count else []
    return [(ordered[place], (place + 1) / count) for place in places]


def line_plot(series: Sequence[Series], axes: Axes) -> str:
    """An SVG with a legend; series without points are left out, and without any there is a sentence instead."""
    shown = [
        msgspec.structs.replace(item, points=points)
        for item in series
        if (points := [point for point in item.points if not axes.logarithmic or point[0] > 0])
    ]
    if not shown:
        return "<p>Nothing to show.</p>"
    xs = [x for item in shown for x, _ in item.points] + [x for x, _ in axes.marks]
    low, high = min(xs), max(xs)
    x_ticks = _decades(low, high) if axes.logarithmic else _ticks(low, high)
    top = axes.y_max or max(y for item in shown for _, y in item.points) or 1.0
    y_ticks = _ticks(0.0, top)
    place_x = _scale((x_ticks[0], max(x_ticks[-1], high)), (LEFT, WIDTH - RIGHT), axes.logarithmic)
    place_y = _scale((0.0, max(y_ticks[-1], top)), (HEIGHT - BOTTOM, TOP), False)
    parts = [_frame(axes)]
    for tick in y_ticks:
        parts.append(_line("grid", (LEFT, place_y(tick)), (WIDTH - RIGHT, place_y(tick))))
        parts.append(_text("end", (LEFT - 6, place_y(tick) + 4), _number(tick)))
    for tick in x_ticks:
        parts.append(_line("grid", (place_x(tick), TOP), (place_x(tick), HEIGHT - BOTTOM)))
        parts.append(_text("middle", (place_x(tick), HEIGHT - BOTTOM + 16), _number(tick)))
    for value, name in axes.marks:
        parts.append(_line("mark", (place_x(value), TOP), (place_x(value), HEIGHT - BOTTOM)))
        parts.append(_text("end", (place_x(value) - 4, HEIGHT - BOTTOM - 6), name))
    for number, item in enumerate(shown):
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in thinned(item.points))
        parts.append(f'<polyline class="series c{number % SERIES_COLOURS}" points="{path}"/>')
    legend = "".join(
        f'<span class="c{number % SERIES_COLOURS}">{escape(item.name)}</span>' for number, item in enumerate(shown)
    )
    caption = f'<p class="legend">{legend}</p>' if len(shown) > 1 else ""
    return f"{_svg(''.join(parts), axes.y, HEIGHT)}{caption}"


def heat_map(rows: Sequence[tuple[str, Sequence[float]]], *, x: str, unit: str, x_max: float) -> str:
    """One row a worker, one column a moment; the darker the more. More rows than fit are merged with neighbours."""
    merged = _merge_rows(rows)
    columns = max((len(values) for _, values in merged), default=0)
    if not columns:
        return "<p>Nothing to show.</p>"
    step = max(1, math.ceil(columns / COLUMNS_MAX))
    cells = [
        (name, [max(values[start : start + step], default=0.0) for start in range(0, columns, step)])
        for name, values in merged
    ]
    highest = max(max(values) for _, values in cells)
    row_height = max(6, min(18, 360 // len(cells)))
    height = TOP + row_height * len(cells) + BOTTOM
    column_width = (WIDTH - LEFT - RIGHT) / len(cells[0][1])
    parts = []
    for row, (name, values) in enumerate(cells):
        y = TOP + row * row_height
        if row_height >= 10 or row % 4 == 0:
            parts.append(_text("end", (LEFT - 6, y + row_height - 2), name))
        parts.extend(
            f'<rect class="heat" x="{LEFT + column * column_width:.1f}" y="{y}" width="{column_width + 0.2:.2f}" '
            f'height="{row_height - 1}" fill-opacity="{value / highest:.2f}"/>'
            for column, value in enumerate(values)
            if highest and value / highest >= 0.01
        )
    place_x = _scale((0.0, x_max or 1.0), (LEFT, WIDTH - RIGHT), False)
    ticks = [tick for tick in _ticks(0.0, x_max or 1.0) if tick <= x_max]
    parts.extend(_text("middle", (place_x(tick), height - BOTTOM + 16), _number(tick)) for tick in ticks)
    parts.append(_text("middle", ((LEFT + WIDTH - RIGHT) / 2, height - 6), x))
    scale = f'<p class="legend">no colour: none, full colour: {_number(highest)} {escape(unit)}</p>'
    return _svg("".join(parts), unit, height) + scale


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most a few hundred of them, with both ends."""
    step = math.ceil(len(points) / POINTS_MAX)
    return points if step <= 1 else [*points[::step], points[-1]]


def _merge_rows(rows: Sequence[tuple[str, Sequence[float]]]) -> list[tuple[str, Sequence[float]]]:
    size = math.ceil(len(rows) / ROWS_MAX)
    if size <= 1:
        return list(rows)
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        (
            f"{group[0][0]}…",
            [sum(column) / len(group) for column in zip(*(values for _, values in group), strict=False)],
        )
        for group in groups
    ]


def _scale(domain: tuple[float, float], target: tuple[float, float], logarithmic: bool) -> Callable[[float], float]:
    low, high = (math.log10(value) for value in domain) if logarithmic else domain
    width = (high - low) or 1.0

    def place(value: float) -> float:
        position = math.log10(value) if logarithmic else value
        return target[0] + (position - low) / width * (target[1] - target[0])

    return place


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, about five of them, from at most `low` to at least `high`."""
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step * 0.999)
    return [number * step for number in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _frame(axes: Axes) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return (
        _line("axis", (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM))
        + _text("middle", ((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6), axes.x)
        + f'<text text-anchor="middle" transform="translate(13 {middle:.0f}) rotate(-90)">{escape(axes.y)}</text>'
    )


def _line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    return f'<line class="{kind}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'


def _text(anchor: str, place: tuple[float, float], text: str) -> str:
    return f'<text text-anchor="{anchor}" x="{place[0]:.1f}" y="{place[1]:.1f}">{escape(text)}</text>'


def _svg(body: str, label: str, height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'
