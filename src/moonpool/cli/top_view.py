"""What `moonpool top` shows, computed from two looks at the status documents. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from moonpool.identity.description import decode_description

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """The status documents at one moment; None for a process that did not answer."""

    at_s: float
    node: Mapping[str, Any] | None
    directory: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the screen as plain values."""

    node: Row | None
    tiers: list[Row] = field(default_factory=list)
    clients: list[Row] = field(default_factory=list)
    directories: list[Row] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)  # that the directory has heard of
    misses: list[Row] = field(default_factory=list)


def overview(before: Look | None, now: Look) -> Overview:
    """Totals as they are now; rates per second since `before`, when that is the same incarnation."""
    directories = _directories(now)
    if now.node is None:
        return Overview(None, directories=directories, nodes=_nodes(now))
    earlier: Mapping[str, Any] = {}
    if before is not None and before.node is not None and before.node.get("incarnation") == now.node.get("incarnation"):
        earlier = before.node
    elapsed_s = now.at_s - before.at_s if before is not None and earlier else 0.0
    return Overview(
        _node(now.node, earlier, elapsed_s),
        _tiers(now.node),
        _clients(now.node, earlier, elapsed_s),
        directories,
        _nodes(now),
        _misses(now.node, earlier, elapsed_s),
    )


def rate(now: Mapping[str, Any], before: Mapping[str, Any], name: str, *, elapsed_s: float) -> float | None:
    """How fast a counter grows per second; None when there is nothing to compare with."""
    if elapsed_s <= 0 or name not in before:
        return None
    return max(0.0, (float(now.get(name, 0)) - float(before[name])) / elapsed_s)


def hit_rate(now: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> float | None:
    """Share of reads that hit, of all or since `before`; None without reads."""
    earlier = before or {}
    hits = now.get("hit_total", 0) - earlier.get("hit_total", 0)
    reads = hits + now.get("miss_total", 0) - earlier.get("miss_total", 0)
    return hits / reads if reads > 0 else None


def _node(node: Mapping[str, Any], before: Mapping[str, Any], elapsed_s: float) -> Row:
    table, earlier = node.get("table", {}), before.get("table", {})
    return {
        "name": node.get("name", ""),
        "state": node.get("state", ""),
        "uptime_ms": node.get("uptime_ms", 0),
        "incarnation": node.get("incarnation", 0),
        "hit_rate": hit_rate(table),
        "hit_rate_now": hit_rate(table, earlier) if earlier else None,
        "hits_per_s": rate(table, earlier, "hit_total", elapsed_s=elapsed_s),
        "misses_per_s": rate(table, earlier, "miss_total", elapsed_s=elapsed_s),
        "stored_per_s": rate(table, earlier, "stored_total", elapsed_s=elapsed_s),
        "evicted_per_s": rate(table, earlier, "evicted_total", elapsed_s=elapsed_s),
    }


def _tiers(node: Mapping[str, Any]) -> list[Row]:
    table = node.get("table", {})
    names = ("capacity_bytes", "used_bytes", "held_bytes", "pinned_bytes", "reserved_bytes", "quarantined_bytes")
    return [
        {"tier": "dram", **{name: table.get(name, 0) for name in names}, "object_count": table.get("object_count", 0)}
    ]


def _clients(node: Mapping[str, Any], before: Mapping[str, Any], elapsed_s: float) -> list[Row]:
    earlier = {item.get("connection"): item for item in before.get("connections", [])}
    rows = []
    for item in node.get("connections", []):
        past = earlier.get(item.get("connection"), {})
        counters, past_counters = item.get("counters", {}), past.get("counters", {})
        described, past_described = _described(item), _described(past)
        rows.append(
            {
                "name": item.get("name", ""),
                "process_id": item.get("process_id", 0),
                "engine": f"{described['engine_id']} {described['role']}" if described else "",
                "transport": item.get("transport", ""),
                "held_bytes": item.get("held_bytes", 0),
                "reserved_bytes": item.get("reserved_bytes", 0),
                "silent_ms": item.get("silent_ms", 0),
                "read_bytes_per_s": rate(counters, past_counters, "read_bytes", elapsed_s=elapsed_s),
                "written_bytes_per_s": rate(counters, past_counters, "written_bytes", elapsed_s=elapsed_s),
                "loaded_blocks": described.get("counters", {}).get("blocks_loaded"),
                "saved_blocks": described.get("counters", {}).get("blocks_saved"),
                "loaded_blocks_per_s": rate(
                    described.get("counters", {}),
                    past_described.get("counters", {}),
                    "blocks_loaded",
                    elapsed_s=elapsed_s,
                ),
            }
        )
    return rows


def _described(connection: Mapping[str, Any]) -> Mapping[str, Any]:
    described = decode_description(connection.get("description"))
    return {} if described is None else msgspec.to_builtins(described)


def _directories(now: Look) -> list[Row]:
    links: Sequence[Mapping[str, Any]] = (now.node or {}).get("directories", [])
    rows = [
        {
            "directory": link.get("path", ""),
            "state": link.get("state", ""),
            "lag": link.get("lag", 0),
            "entries": None,
            "holders": None,
        }
        for link in links
    ]
    if now.directory is None:
        return rows
    known = {
        "entries": now.directory.get("index", {}).get("entry_count", 0),
        "holders": len(now.directory.get("holders", [])),
    }
    if not rows:
        rows = [{"directory": now.directory.get("name", ""), "state": now.directory.get("state", ""), "lag": None}]
    rows[0].update(known)
    return rows


def _nodes(now: Look) -> list[Row]:
    own = (now.node or {}).get("incarnation")
    return [
        {
            "node": holder.get("name", ""),
            "here": "this host" if own is not None and holder.get("incarnation") == own else "",
            "site": holder.get("site", ""),
            "address": holder.get("address", ""),
            "state": "warming" if holder.get("warming") else "known",
            "entries": holder.get("entry_count", 0),
            "last_heard_ms": holder.get("last_heard_ms", 0),
        }
        for holder in sorted((now.directory or {}).get("holders", []), key=lambda row: str(row.get("name", "")))
    ]


def _misses(node: Mapping[str, Any], before: Mapping[str, Any], elapsed_s: float) -> list[Row]:
    counters, earlier = node.get("counters", {}), before.get("counters", {})
    rows = [
        {
            "reason": name.removeprefix("misses_"),
            "count": count,
            "per_s": rate(counters, earlier, name, elapsed_s=elapsed_s),
        }
        for name, count in counters.items()
        if name.startswith("misses_") and count
    ]
    return sorted(rows, key=lambda row: (-(row["per_s"] or 0.0), -row["count"]))
