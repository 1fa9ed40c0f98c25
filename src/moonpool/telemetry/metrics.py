"""Every metric of Moonpool, declared once: ``moonpool_<room>_<what>_<unit or total>``.

The numbers come from the native servers' `status()` and `counters()`, and from what engines say of themselves
(`describe`). A declaration names its place in these documents, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Family = CounterMetricFamily | GaugeMetricFamily


class Declared(msgspec.Struct, frozen=True):
    """One metric.

    `source`: dotted place of the number; with `label` the place of a mapping or the prefix of several numbers,
    whose rest of the name is the label's value.
    """

    name: str
    kind: Literal["counter", "gauge"]
    source: str
    help: str
    label: str = ""


def _table(room: str, entries: Mapping[str, str], *, kind: Literal["counter", "gauge"], place: str) -> list[Declared]:
    return [Declared(f"moonpool_{room}_{name}", kind, f"{place}.{name}", text) for name, text in entries.items()]


NODE_METRICS: tuple[Declared, ...] = (
    Declared("moonpool_node_uptime_ms", "gauge", "uptime_ms", "since the node started"),
    Declared("moonpool_node_populated_bytes", "gauge", "segment.populated_bytes", "memory that is ready to be used"),
    *_table(
        "node",
        {
            "capacity_bytes": "memory offered to the pool",
            "used_bytes": "memory taken, by whatever",
            "committed_bytes": "values that can be read",
            "reserved_bytes": "reserved and not committed",
            "held_bytes": "held by readers",
            "pinned_bytes": "pinned against eviction",
            "quarantined_bytes": "kept apart because a writer may still write there",
            "object_count": "objects that can be read",
            "reservation_count": "reservations",
            "hold_count": "read references",
            "pin_count": "pinned objects",
            "quarantined_count": "extents in quarantine",
        },
        kind="gauge",
        place="table",
    ),
    *_table(
        "node",
        {
            "stored_total": "puts that stored",
            "present_total": "puts of what was there already",
            "conflict_total": "puts of another value under a taken key",
            "no_room_total": "puts without room",
            "refused_total": "puts refused for another reason",
            "hit_total": "reads that hit",
            "miss_total": "reads that missed",
            "evicted_total": "objects that made room",
            "expired_total": "objects whose time ended",
            "removed_total": "objects removed by request",
            "damaged_total": "objects whose bytes did not fit",
            "aborted_total": "reservations given up",
        },
        kind="counter",
        place="table",
    ),
    Declared("moonpool_node_misses_total", "counter", "counters.misses_", "reads that missed, by reason", "reason"),
    Declared(
        "moonpool_node_refused_puts_total", "counter", "counters.refused_puts_", "puts refused, by reason", "reason"
    ),
    Declared(
        "moonpool_node_refused_handshakes_total", "counter", "counters.refused_handshakes_",
        "connections refused, by reason", "reason",
    ),
    Declared("moonpool_node_native_total", "counter", "counters.", "every other counter of the native node", "counter"),
)  # fmt: skip

DIRECTORY_METRICS: tuple[Declared, ...] = (
    Declared("moonpool_directory_uptime_ms", "gauge", "uptime_ms", "since the directory started"),
    *_table(
        "directory",
        {
            "holder_count": "owners that it has heard of",
            "object_count": "objects that somebody is believed to hold",
            "block_count": "blocks that somebody is believed to hold",
            "entry_count": "(object, holder) pairs",
            "bytes": "memory of the index",
        },
        kind="gauge",
        place="index",
    ),
    *_table(
        "directory",
        {
            "stored_total": "events: stored",
            "removed_total": "events: removed",
            "unknown_removed_total": "events: removed, of something unknown",
            "refused_full_total": "entries not taken because the index is full",
        },
        kind="counter",
        place="index",
    ),
    Declared(
        "moonpool_directory_native_total",
        "counter",
        "counters.",
        "every other counter of the native directory",
        "counter",
    ),
)

# Of what is connected now; the sums fall when a client leaves.
CLIENT_METRICS: dict[str, str] = {
    "moonpool_client_connections": "clients connected",
    "moonpool_client_held_bytes": "held by these clients",
    "moonpool_client_reserved_bytes": "reserved by these clients and not committed",
}

# From EngineDescription.counters: (metric, field, help).
CONNECTOR_METRICS: tuple[tuple[str, str, str], ...] = (
    ("moonpool_connector_lookups_total", "lookups", "look-ups by the engine's scheduler"),
    ("moonpool_connector_lookup_hits_total", "lookup_hits", "look-ups that found at least a block"),
    ("moonpool_connector_lookup_timeouts_total", "lookup_timeouts", "look-ups without an answer in their budget"),
    ("moonpool_connector_breaker_openings_total", "breaker_openings", "times that the breaker opened"),
    ("moonpool_connector_promised_tokens_total", "promised_tokens", "tokens offered to the engine"),
    ("moonpool_connector_applied_tokens_total", "applied_tokens", "tokens whose blocks were verified and applied"),
    ("moonpool_connector_blocks_loaded_total", "blocks_loaded", "blocks verified and applied"),
    ("moonpool_connector_blocks_failed_total", "blocks_failed", "blocks whose load failed"),
    ("moonpool_connector_blocks_saved_total", "blocks_saved", "blocks stored"),
    ("moonpool_connector_blocks_present_total", "blocks_present", "blocks that the pool had already"),
    ("moonpool_connector_blocks_refused_total", "blocks_refused", "blocks that the pool did not take"),
    ("moonpool_connector_loaded_bytes_total", "bytes_loaded", "bytes verified and applied"),
    ("moonpool_connector_saved_bytes_total", "bytes_saved", "bytes stored"),
    ("moonpool_connector_requests_total", "requests_finished", "requests finished"),
    ("moonpool_connector_load_failures_total", "load_failures", "requests whose load failed and was recomputed"),
    ("moonpool_connector_load_ms_total", "load_ms_total", "time of loads"),
    ("moonpool_connector_save_ms_total", "save_ms_total", "time of saves"),
    ("moonpool_connector_schedule_ms_total", "schedule_ms_total", "time added to the engine's scheduler"),
)

ROOM_METRICS: dict[str, tuple[Declared, ...]] = {"node": NODE_METRICS, "directory": DIRECTORY_METRICS}


def collect(room: str, document: Mapping[str, Any]) -> Iterator[Metric]:
    """The metrics of a node or directory whose status, with its counters inside, is `document`."""
    taken: set[str] = set()
    for declared in ROOM_METRICS[room]:
        family = _family(
            declared.name, declared.kind, text=declared.help, labels=[declared.label] if declared.label else []
        )
        if not declared.label:
            value = _number(_at(document, declared.source))
            if value is not None:
                family.add_metric([], value)
        else:
            for rest, value in _numbers_below(document, declared.source, taken):
                family.add_metric([rest], value)
        yield family
    connections = [each for each in document.get("connections") or () if isinstance(each, Mapping)]
    yield from _clients(connections)
    if room == "node":
        yield from _connectors(connections)


def _clients(connections: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    sums: dict[tuple[str, str], list[float]] = {}
    for connection in connections:
        row = sums.setdefault(
            (str(connection.get("tenant", "")), str(connection.get("transport", ""))), [0.0, 0.0, 0.0]
        )
        row[0] += 1
        row[1] += _number(connection.get("held_bytes")) or 0
        row[2] += _number(connection.get("reserved_bytes")) or 0
    for column, (name, text) in enumerate(CLIENT_METRICS.items()):
        family = _family(name, "gauge", text=text, labels=["tenant", "transport"])
        for labels, row in sorted(sums.items()):
            family.add_metric(labels, row[column])
        yield family


def _connectors(connections: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    rows: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for connection in connections:
        description = _parsed(connection.get("description"))
        counters = description.get("counters")
        if isinstance(counters, Mapping) and description.get("engine_id"):
            labels = (str(description["engine_id"]), str(description.get("role", "")), str(description.get("rank", 0)))
            rows[labels] = counters  # a process connected twice says the same twice
    for name, field, text in CONNECTOR_METRICS:
        family = _family(name, "counter", text=text, labels=["engine", "role", "rank"])
        for labels, counters in sorted(rows.items()):
            family.add_metric(labels, _number(counters.get(field)) or 0)
        yield family


def _family(name: str, kind: str, *, text: str, labels: list[str]) -> Family:
    if kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), text, labels=labels)
    return GaugeMetricFamily(name, text, labels=labels)


def _numbers_below(document: Mapping[str, Any], source: str, taken: set[str]) -> Iterator[tuple[str, float]]:
    """Numbers whose dotted place begins with `source`; each is given to the first declaration that fits."""
    place, _, prefix = source.rpartition(".")
    below = _at(document, place)
    for key, entry in sorted(below.items()) if isinstance(below, Mapping) else ():
        value = _number(entry)
        if key.startswith(prefix) and value is not None and f"{place}.{key}" not in taken:
            taken.add(f"{place}.{key}")
            yield key.removeprefix(prefix).removesuffix("_total"), value


def _at(document: object, place: str) -> object:
    for key in place.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _parsed(description: object) -> Mapping[str, Any]:
    """A client's words: a mapping, JSON text of one, or nothing that concerns us."""
    if isinstance(description, str):
        try:
            description = msgspec.json.decode(description)
        except msgspec.DecodeError:  # of a client that is no engine
            return {}
    return description if isinstance(description, Mapping) else {}
