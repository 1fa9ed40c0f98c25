"""top: what happens on this host, live."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import click

from moonpool.cli.settings import Settings, bytes_text, duration_text, settings_options
from moonpool.cli.top_view import Look, Overview, overview
from moonpool.cli.watch import Watch

if TYPE_CHECKING:
    from rich.console import RenderableType

_TIMEOUT_MS = 500
_MISS_ROW_COUNT = 8


@click.command(short_help="Show memory, hit rate, clients, directories and misses, live.")
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=1.0, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print one snapshot and end; exit code 1 when no node answers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@settings_options
def top(*, settings: Settings, interval_s: float, once: bool, as_json: bool) -> int:
    """Show memory, hit rate, clients, directories, nodes and misses by reason, live until Ctrl-C.

    It goes on while the node is away, and shows it again when it is back.
    """
    from rich.console import Console

    with Watch(settings, timeout_ms=_TIMEOUT_MS) as watch:
        if once:
            shown = overview(None, look(watch))
            _print_once(shown, as_json=as_json)
            return 0 if shown.node is not None else 1
        console = Console()
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how one leaves it
            if as_json or not console.is_terminal:
                _stream(watch, interval_s, as_json=as_json)
            else:
                _live(watch, interval_s, console, where=settings.config.runtime_folder)
    return 0


def look(watch: Watch) -> Look:
    """One look at this host's node and directory."""
    return Look(time.monotonic(), watch.node(), watch.directory())


def _live(watch: Watch, interval_s: float, console: Any, *, where: str) -> None:
    from rich.live import Live

    before = look(watch)
    with Live(render(overview(None, before), where), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            now = look(watch)
            live.update(render(overview(before, now), where), refresh=True)
            before = now


def _stream(watch: Watch, interval_s: float, *, as_json: bool) -> None:
    before = look(watch)
    while True:
        time.sleep(interval_s)
        now = look(watch)
        _print_once(overview(before, now), as_json=as_json)
        before = now


def _print_once(shown: Overview, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(shown)))
        return
    from rich.console import Console

    Console().print(render(shown, ""))


def render(shown: Overview, where: str) -> RenderableType:
    """The screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if shown.node is None:
        place = f" in {where}" if where else ""
        parts.append(Text(f"no node answers{place}; start one with `moonpool up`", style="bold red"))
    else:
        parts.append(_headline(shown.node))
    sections = (
        (shown.tiers, "memory"),
        (shown.clients, "clients"),
        (shown.directories, "directories"),
        (shown.nodes, "nodes"),
        (shown.misses[:_MISS_ROW_COUNT], "misses by reason"),
    )
    for rows, title in sections:
        if rows:
            parts.append(_table(title, rows))
    return Group(*parts)


def _headline(node: dict[str, Any]) -> RenderableType:
    from rich.text import Text

    text = Text()
    text.append(f"{node['name']}  ", style="bold")
    text.append(f"{node['state']}, up {duration_text(node['uptime_ms'])}   ")
    for label, name in (("hit rate", "hit_rate"), ("now", "hit_rate_now")):
        if node[name] is not None:
            text.append(f"{label} {node[name]:.1%}   ", style="green")
    for label in ("hits", "misses", "stored", "evicted"):
        if node[f"{label}_per_s"] is not None:
            text.append(f"{label} {node[f'{label}_per_s']:.0f}/s   ")
    return text


def _table(title: str, rows: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    names = [name for name in rows[0] if any(row.get(name) not in (None, "") for row in rows)]
    for name in names:
        text = name.removesuffix("_per_s").removesuffix("_bytes").removesuffix("_ms").replace("_", " ")
        heading = text + "/s" if name.endswith("_per_s") else text
        numeric = all(not isinstance(row.get(name), str) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in names))
    return table


def _cell(name: str, value: Any) -> str:
    from rich.markup import escape

    if value is None:
        return "-"
    if "bytes" in name:
        return bytes_text(value)
    if name.endswith("_ms"):
        return duration_text(value)
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))
