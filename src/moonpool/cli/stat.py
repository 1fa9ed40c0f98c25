"""stat: the state of this host's node, or of single objects."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

import click

from moonpool.cli.settings import Settings, bytes_text, duration_text, json_option, print_rows, settings_options
from moonpool.pool.keys import key_from_text, key_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(short_help="Show the state of the node, or of objects.")
@click.argument("keys", nargs=-1)
@json_option
@settings_options
def stat(*, settings: Settings, keys: Sequence[str], as_json: bool) -> int:
    """Show the state of this host's node; with KEYS, whether each is there, how long and where.

    `elsewhere`: another node has it, and a read gets it from there. With KEYS the exit code is 1 when nobody has one.
    """
    with settings.connect() as pool:
        if not keys:
            _show_node(pool.stat(), as_json=as_json)
            return 0
        names = [key_from_text(key) for key in keys]
        found = pool.exists(names)
        places = pool.locate(names)
    rows = [
        {
            "key": key_text(name),
            "status": "elsewhere" if holders and not result else result.status.name.lower(),
            "length": result.length,
            "checksum": f"{result.checksum:#010x}" if result else "",
            "holders": ", ".join(holder.name for holder in holders),
            "reason": "" if result or holders else result.reason.meaning,
        }
        for name, result, holders in zip(names, found, places, strict=True)
    ]
    print_rows(rows, {name: name for name in rows[0]}, as_json=as_json)
    return 0 if all(result or holders for result, holders in zip(found, places, strict=True)) else 1


def _clients_text(connections: Sequence[dict[str, Any]]) -> str:
    """How many, and by which transport: "3 (2 shared_memory, 1 tcp)"."""
    counts = collections.Counter(str(connection.get("transport", "")) for connection in connections)
    parts = ", ".join(f"{count} {transport}" for transport, count in sorted(counts.items()))
    return f"{len(connections)} ({parts})" if parts else "0"


def _show_node(status: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(status))
        return
    table = status.get("table", {})
    reads = table.get("hit_total", 0) + table.get("miss_total", 0)
    lines = {
        "node": f"{status.get('name')} ({status.get('state')}, up {duration_text(status.get('uptime_ms', 0))})",
        "memory": f"{bytes_text(table.get('used_bytes', 0))} of {bytes_text(table.get('capacity_bytes', 0))} used",
        "objects": f"{table.get('object_count', 0)} ({table.get('pin_count', 0)} pinned)",
        "reads": f"{reads}, {table.get('hit_total', 0)} hits"
        + (f" ({table['hit_total'] / reads:.1%})" if reads else ""),
        "evicted": str(table.get("evicted_total", 0)),
        "clients": _clients_text(status.get("connections", [])),
        "address": str(status.get("address", "")),
    }
    for name, text in lines.items():
        click.echo(f"{name:9}{text}")
