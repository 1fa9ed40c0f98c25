"""Every metric of Moonpool, declared once: ``moonpool_<room>_<what>_<unit or total>``.

The numbers come from the native servers' `status()` and `counters()`, and from what engines say of themselves
(`describe`). A declaration names its place in these documents, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Kind = Literal["counter", "gauge"]
Family = CounterMetricFamily | GaugeMetricFamily


class Declared(msgspec.Struct, frozen=True):
    """One metric.

    `source` is the place of its number: dotted inside a status document for nodes and directories, where with a
    label it is the prefix of several numbers, whose rest of the name is the label's value; a field of a
    connection or of `EngineCounters` for clients and connectors.
    """

    name: str
    kind: Kind
    source: str
    help: str
    labels: tuple[str, ...] = ()


def _table(room: str, entries: Mapping[str, str], *, kind: Kind, place: str) -> list[Declared]:
    return [Declared(f"moonpool_{room}_{name}", kind, f"{place}.{name}", text) for name, text in entries.items()]


def _server(room: str) -> list[Declared]:
    """What both native servers count; the last declaration takes what no other does."""
    entries: tuple[tuple[str, Kind, str, str, tuple[str, ...]], ...] = (
        ("connection_count", "gauge", "connection_count", "connections", ()),
        ("accepted_total", "counter", "accepted", "connections accepted", ()),
        ("welcomed_total", "counter", "welcomed", "peers that knew the secret", ()),
        ("closed_total", "counter", "closed_", "connections that ended", ("ending",)),
        ("dropped_total", "counter", "dropped_", "remote peers given up", ("reason",)),
        ("refusals_total", "counter", "refused_", "puts, calls and peers refused", ("reason",)),
        ("malformed_total", "counter", "malformed_", "frames that were none", ("kind",)),
        ("requests_total", "counter", "requests_", "messages taken in", ("verb",)),
        ("native_total", "counter", "", f"every other counter of the {room}", ("counter",)),
    )
    return [
        Declared(f"moonpool_{room}_{name}", kind, f"counters.{source}", text, labels)
        for name, kind, source, text, labels in entries
    ]


def _remote() -> list[Declared]:
    """What a node counts of clients on other hosts. Sums of many kinds come last: they take what no other does."""
    entries: tuple[tuple[str, Kind, str, str, tuple[str, ...]], ...] = (
        ("rail_count", "gauge", "rail_count", "connections that move bytes", ()),
        ("rail_read_bytes_total", "counter", "rail_read_bytes", "bytes sent over rails", ()),
        ("rail_written_bytes_total", "counter", "rail_written_bytes", "bytes received over rails", ()),
        ("rails_proven_total", "counter", "rails", "rails whose peer knew the secret", ()),
        ("rails_total", "counter", "rails_", "rails taken and ended", ("event",)),
        ("rail_slices_total", "counter", "rail_", "slices, messages and faults of rails", ("kind",)),
        ("grants_given_count", "gauge", "grants_given", "holds and reservations that rails may use", ()),
        ("grants_inside_count", "gauge", "grants_inside", "slices under way", ()),
        ("grants_leaving_count", "gauge", "grants_leaving", "grants that ended while a rail was inside", ()),
        ("grants_denied_total", "counter", "grants_denied_total", "slices without a grant, or past it", ()),
        ("grants_ended_total", "counter", "grants_", "grants that ended in an unusual way", ("ending",)),
    )
    return [
        Declared(f"moonpool_node_{name}", kind, f"counters.{source}", text, labels)
        for name, kind, source, text, labels in entries
    ]


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
    Declared("moonpool_node_read_bytes_total", "counter", "counters.bytes_read_total", "bytes given to readers"),
    Declared("moonpool_node_written_bytes_total", "counter", "counters.bytes_stored_total", "bytes committed"),
    Declared("moonpool_node_catalogue_entry_count", "gauge", "counters.catalogue_entry_count", "objects read unasked"),
    Declared(
        "moonpool_node_catalogue_unlisted_total",
        "counter",
        "counters.catalogue_unlisted_total",
        "objects that found no place in the catalogue",
    ),
    Declared("moonpool_node_departed_count", "gauge", "counters.departed_count", "gone clients that may still write"),
    Declared("moonpool_node_misses_total", "counter", "counters.misses_", "reads that missed", ("reason",)),
    Declared("moonpool_node_denied_total", "counter", "counters.denied_", "requests for what is not theirs", ("kind",)),
    Declared("moonpool_node_released_late_total", "counter", "counters.released_late", "holds let go after revocation"),
    Declared(
        "moonpool_node_wrong_incarnation_total", "counter", "counters.wrong_incarnation", "requests for a former node"
    ),
    *_remote(),
    *_server("node"),
)

DIRECTORY_METRICS: tuple[Declared, ...] = (
    Declared("moonpool_directory_uptime_ms", "gauge", "uptime_ms", "since the directory started"),
    *_table(
        "directory",
        {
            "holder_count": "owners that it has heard of",
            "object_count": "objects that somebody is believed to hold",
            "block_count": "blocks that somebody is believed to hold",
            "entry_count": "(object, holder) pairs",
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
    Declared("moonpool_directory_index_bytes", "gauge", "counters.index_bytes", "memory of the index"),
    Declared("moonpool_directory_events_total", "counter", "counters.events_total", "events of owners taken in"),
    *_server("directory"),
)

CONDUCTOR_METRICS: tuple[Declared, ...] = (
    Declared("moonpool_conductor_uptime_ms", "gauge", "uptime_ms", "since the conductor started"),
    *_table(
        "conductor",
        {
            "block_count": "blocks that some worker is believed to hold",
            "entry_count": "(block, worker) pairs",
        },
        kind="gauge",
        place="index",
    ),
    Declared("moonpool_conductor_index_bytes", "gauge", "index.bytes", "memory of the index"),
    *_table(
        "conductor",
        {
            "stored_total": "blocks told to be stored",
            "removed_total": "blocks told to be removed",
            "unknown_removed_total": "blocks told to be removed that were not known",
            "refused_full_total": "blocks not taken because the index is full",
        },
        kind="counter",
        place="index",
    ),
    Declared("moonpool_conductor_requests_total", "counter", "counters.requests_", "requests answered", ("path",)),
    Declared("moonpool_conductor_directory_questions_total", "counter", "counters.directory_questions", "questions"),
    Declared(
        "moonpool_conductor_directory_unanswered_total",
        "counter",
        "counters.directory_unanswered",
        "questions that the directory did not answer in time",
    ),
    Declared("moonpool_conductor_intake_failures_total", "counter", "counters.intake_failures", "faults of one stream"),
)

# One row a worker; `source` is the place in its entry of /status.
_WORKER_ENTRIES: tuple[tuple[str, Kind, str, str], ...] = (
    ("degraded_count", "gauge", "is_degraded", "1: what it claims to hold does not count (/status says why)"),
    ("connected_count", "gauge", "is_connected", "1: its event stream is there"),
    ("entry_count", "gauge", "entry_count", "blocks that it is believed to hold"),
    ("messages_total", "counter", "messages.applied", "messages of its event stream taken in"),
    ("gaps_total", "counter", "messages.gaps", "gaps in its event stream"),
    ("lost_total", "counter", "messages.lost", "messages of its event stream that never came"),
    ("replays_total", "counter", "messages.replays", "replays asked for"),
    ("restarts_total", "counter", "messages.restarts", "restarts of its publisher"),
    ("malformed_total", "counter", "events.malformed", "messages that were no KV events"),
    ("refused_total", "counter", "events.blocks_refused", "blocks beyond its share of the index"),
)
WORKER_METRICS: tuple[Declared, ...] = tuple(
    Declared(f"moonpool_conductor_worker_{name}", kind, source, text, ("worker", "rank", "model"))
    for name, kind, source, text in _WORKER_ENTRIES
)

# Of what is connected now; the sums fall when a client leaves.
CLIENT_METRICS: tuple[Declared, ...] = tuple(
    Declared(f"moonpool_client_{name}", "gauge", source, text, ("tenant", "transport"))
    for name, source, text in (
        ("connections", "", "clients connected"),
        ("held_bytes", "held_bytes", "held by these clients"),
        ("reserved_bytes", "reserved_bytes", "reserved by these clients and not committed"),
    )
)

CONNECTOR_METRICS: tuple[Declared, ...] = tuple(
    Declared(f"moonpool_connector_{name}_total", "counter", source, text, ("engine", "role", "rank"))
    for name, source, text in (
        ("lookups", "lookups", "look-ups by the engine's scheduler"),
        ("lookup_hits", "lookup_hits", "look-ups that found at least a block"),
        ("lookup_timeouts", "lookup_timeouts", "look-ups without an answer in their budget"),
        ("breaker_openings", "breaker_openings", "times that the breaker opened"),
        ("promised_tokens", "promised_tokens", "tokens offered to the engine"),
        ("applied_tokens", "applied_tokens", "tokens whose blocks were verified and applied"),
        ("blocks_loaded", "blocks_loaded", "blocks verified and applied"),
        ("blocks_failed", "blocks_failed", "blocks whose load failed"),
        ("blocks_saved", "blocks_saved", "blocks stored"),
        ("blocks_present", "blocks_present", "blocks that the pool had already"),
        ("blocks_refused", "blocks_refused", "blocks that the pool did not take"),
        ("loaded_bytes", "bytes_loaded", "bytes verified and applied"),
        ("saved_bytes", "bytes_saved", "bytes stored"),
        ("requests", "requests_finished", "requests finished"),
        ("load_failures", "load_failures", "requests whose load failed and was recomputed"),
        ("load_ms", "load_ms_total", "time of loads"),
        ("save_ms", "save_ms_total", "time of saves"),
        ("schedule_ms", "schedule_ms_total", "time added to the engine's scheduler"),
    )
)

DECLARATIONS: tuple[Declared, ...] = (
    *NODE_METRICS,
    *DIRECTORY_METRICS,
    *CONDUCTOR_METRICS,
    *WORKER_METRICS,
    *CLIENT_METRICS,
    *CONNECTOR_METRICS,
)

ROOM_METRICS: dict[str, tuple[Declared, ...]] = {
    "node": NODE_METRICS,
    "directory": DIRECTORY_METRICS,
    "conductor": CONDUCTOR_METRICS,
}


def collect(room: str, document: Mapping[str, Any]) -> Iterator[Metric]:
    """The metrics of a process whose status, with its counters inside, is `document`."""
    # The native counters repeat the table's figures; each number is shown once.
    table = _at(document, "table" if room == "node" else "index")
    taken = {f"counters.{key}" for key in table} if isinstance(table, Mapping) else set()
    for declared in ROOM_METRICS[room]:
        family = _family(declared)
        if declared.labels:
            for rest, value in _numbers_below(document, declared.source, taken):
                family.add_metric([rest], value)
        else:
            taken.add(declared.source)
            single = _number(_at(document, declared.source))
            if single is not None:
                family.add_metric([], single)
        yield family
    if room == "conductor":
        yield from _workers(document.get("workers") or ())
        return
    connections = [each for each in document.get("connections") or () if isinstance(each, Mapping)]
    yield from _clients(connections)
    if room == "node":
        yield from _connectors(connections)


def _workers(workers: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    rows = [
        {**each, "is_degraded": int(each.get("state") == "degraded"), "is_connected": int(bool(each.get("connected")))}
        for each in workers
    ]
    for declared in WORKER_METRICS:
        family = _family(declared)
        for row in rows:
            labels = [str(row.get(name, "")) for name in ("instance_id", "dp_rank", "model")]
            family.add_metric(labels, _number(_at(row, declared.source)) or 0)
        yield family


def _clients(connections: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for connection in connections:
        labels = (str(connection.get("tenant", "")), str(connection.get("transport", "")))
        groups.setdefault(labels, []).append(connection)
    for declared in CLIENT_METRICS:
        family = _family(declared)
        for labels, members in sorted(groups.items()):
            amounts = [_number(member.get(declared.source)) or 0 for member in members]
            family.add_metric(labels, sum(amounts) if declared.source else len(members))
        yield family


def _connectors(connections: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    rows: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for connection in connections:
        description = _parsed(connection.get("description"))
        counters = description.get("counters")
        if isinstance(counters, Mapping) and description.get("engine_id"):
            labels = (str(description["engine_id"]), str(description.get("role", "")), str(description.get("rank", 0)))
            rows[labels] = counters  # a process connected twice says the same twice
    for declared in CONNECTOR_METRICS:
        family = _family(declared)
        for labels, counters in sorted(rows.items()):
            family.add_metric(labels, _number(counters.get(declared.source)) or 0)
        yield family


def _family(declared: Declared) -> Family:
    if declared.kind == "counter":
        return CounterMetricFamily(declared.name.removesuffix("_total"), declared.help, labels=declared.labels)
    return GaugeMetricFamily(declared.name, declared.help, labels=declared.labels)


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
