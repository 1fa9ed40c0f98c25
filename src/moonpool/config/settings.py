"""The one tree of settings: names, types, units, defaults, bounds and what each is for.

Every limit of the whole system is declared here. Fields whose name has the word ``bytes`` accept sizes such as
``"4GiB"``, those with ``ms`` accept durations such as ``"2s"``. A default of `CHOSEN` (0 or "") is replaced by a
value that fits the machine when the settings are loaded; `moonpool config show` prints the chosen one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

NODE_HTTP_PORT_DEFAULT = 7811
DIRECTORY_HTTP_PORT_DEFAULT = 7812
CONDUCTOR_HTTP_PORT_DEFAULT = 13333  # Mooncake's

SEGMENT_BYTES_MIN = 1 * MIB
SEGMENT_BYTES_MAX = 16 * 1024 * GIB

Port = Annotated[int, Meta(ge=0, le=65535, description="HTTP port; 0 takes any free one")]
Host = Annotated[
    str, Meta(min_length=1, description="address to answer HTTP on; anything but loopback needs secret_file")
]
Name = Annotated[str, Meta(max_length=255, pattern=r"^[A-Za-z0-9._:@/-]*$")]


Listen = Annotated[
    tuple[str, ...],
    Meta(max_length=8, description="host:port to serve other hosts at; anything but loopback needs secret_file"),
]
RemoteSilent = Annotated[
    int, Meta(ge=2_000, le=600_000, description="a remote peer that says nothing for so long is dropped")
]


class NodeLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one node; passed on to the native server under these names."""

    held_bytes_per_connection: Annotated[
        int, Meta(ge=0, description="bytes that one connection may hold for reading; 0: half of the segment")
    ] = 0
    reserved_bytes_per_connection: Annotated[
        int, Meta(ge=0, description="bytes that one connection may reserve and not commit; 0: half of the segment")
    ] = 0
    pinned_bytes: Annotated[int, Meta(ge=0, description="bytes that may be pinned; 0: half of the segment")] = 0
    object_count: Annotated[int, Meta(ge=1, le=2**31, description="objects in the table")] = 4_000_000
    holds_per_connection: Annotated[
        int, Meta(ge=1, le=2**24, description="read references that one connection may have")
    ] = 65_536
    reservations_per_connection: Annotated[
        int, Meta(ge=1, le=2**24, description="reservations that one connection may have")
    ] = 65_536
    why_count: Annotated[int, Meta(ge=0, le=2**24, description="gone objects that `why` remembers")] = 262_144
    connection_count: Annotated[int, Meta(ge=1, le=65536, description="clients at a time")] = 1024
    reservation_ms: Annotated[
        int, Meta(ge=100, le=3_600_000, description="after this a reservation is quarantined and not committable")
    ] = 30_000
    copy_hold_ms: Annotated[
        int, Meta(ge=100, le=3_600_000, description="after this a copy hold may be revoked; its reader re-checks")
    ] = 10_000
    handshake_ms: Annotated[int, Meta(ge=50, le=60_000, description="time to prove knowledge of the secret")] = 2_000
    frame_ms: Annotated[int, Meta(ge=50, le=60_000, description="time to finish a message once begun")] = 5_000
    remote_silent_ms: RemoteSilent = 5_000
    rail_count: Annotated[int, Meta(ge=1, le=65_536, description="connections that move bytes, of all clients")] = 256
    rail_thread_count: Annotated[int, Meta(ge=1, le=64, description="threads that serve them")] = 2
    rail_silent_ms: Annotated[
        int, Meta(ge=100, le=600_000, description="a rail that is silent within a slice is closed after this")
    ] = 10_000
    unsent_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=GIB, description="replies kept for one connection that does not read them")
    ] = 8 * MIB
    small_put_bytes: Annotated[
        int, Meta(ge=0, le=1 * MIB, description="values up to this size are put in one message")
    ] = 4 * KIB


class NodeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The node of this host: owner of the bytes."""

    name: Annotated[Name, Meta(description='label of the node; "" takes the host name')] = ""
    site: Annotated[Name, Meta(description="place label, for placement and residency")] = "local"
    socket_path: Annotated[
        str, Meta(max_length=107, description='unix socket; "" is node.sock in the runtime folder')
    ] = ""
    listen: Listen = ()
    advertise: Annotated[
        str,
        Meta(max_length=255, description='host or host:port that others are told; "" is the first of listen'),
    ] = ""
    segment_bytes: Annotated[
        int,
        Meta(ge=0, le=SEGMENT_BYTES_MAX, description="memory offered to the pool; 0: a quarter of what is available"),
    ] = 0
    arena_bytes: Annotated[
        int,
        Meta(ge=0, le=SEGMENT_BYTES_MAX, description="part lent to a writer, bounds a value; 0: an eighth of segment"),
    ] = 0
    tenants: Annotated[
        tuple[str, ...],
        Meta(max_length=256, description="who may connect, the first one by shared memory; none named: anybody"),
    ] = ()
    directories: Annotated[
        tuple[str, ...],
        Meta(
            max_length=16, description="host:port or sockets of directories to tell; none named: directory.socket_path"
        ),
    ] = ()
    http_host: Host = "127.0.0.1"
    http_port: Port = NODE_HTTP_PORT_DEFAULT
    limits: NodeLimits = field(default_factory=NodeLimits)


class DirectoryLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one directory; passed on to the native server under these names."""

    connection_count: Annotated[int, Meta(ge=1, le=65536, description="clients and owners at a time")] = 4096
    handshake_ms: Annotated[int, Meta(ge=50, le=60_000, description="time to prove knowledge of the secret")] = 2_000
    frame_ms: Annotated[int, Meta(ge=50, le=60_000, description="time to finish a message once begun")] = 5_000
    remote_silent_ms: RemoteSilent = 5_000
    unsent_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=GIB, description="replies kept for one connection that does not read them")
    ] = 8 * MIB


class DirectorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The directory: soft state, who is believed to hold what."""

    name: Annotated[Name, Meta(description='label of the directory; "" takes the host name')] = ""
    socket_path: Annotated[
        str, Meta(max_length=107, description='unix socket; "" is directory.sock in the runtime folder')
    ] = ""
    listen: Listen = ()
    entry_count_max: Annotated[
        int, Meta(ge=1, le=2**31, description="(object, holder) pairs; when full new ones are refused and counted")
    ] = 16_000_000
    http_host: Host = "127.0.0.1"
    http_port: Port = DIRECTORY_HTTP_PORT_DEFAULT
    limits: DirectoryLimits = field(default_factory=DirectoryLimits)


class ConductorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The conductor: which engine holds how much of a prompt."""

    name: Annotated[Name, Meta(description='label of the conductor; "" takes the host name')] = ""
    http_host: Host = "127.0.0.1"
    http_port: Port = CONDUCTOR_HTTP_PORT_DEFAULT
    open_on_loopback: Annotated[
        bool,
        Meta(description="on loopback answer the API without the token, as Mooncake's clients need; /status keeps it"),
    ] = False
    workers_file: Annotated[str, Meta(description='JSON file of workers to register at start; "" for none')] = ""
    announced: Annotated[
        bool, Meta(description="take engines from the directory, where their connectors announce them")
    ] = True
    announced_interval_ms: Annotated[
        int, Meta(ge=50, le=60_000, description="how often the directory is looked at")
    ] = 1_000
    directory_budget_ms: Annotated[
        int, Meta(ge=1, le=1_000, description="one question to the directory; no answer by then is no hit")
    ] = 5
    entry_count_max: Annotated[
        int, Meta(ge=1, le=2**31, description="(block, worker) pairs; when full new ones are refused and counted")
    ] = 16_000_000
    entry_count_per_worker: Annotated[
        int, Meta(ge=1, le=2**31, description="of one worker; more are refused and counted")
    ] = 4_000_000
    worker_count_max: Annotated[int, Meta(ge=1, le=16_000, description="workers registered at a time")] = 4_096
    stream_ms: Annotated[
        int, Meta(ge=100, le=60_000, description="time for a worker's event stream to answer, else it is degraded")
    ] = 5_000
    probe_ms: Annotated[
        int, Meta(ge=100, le=60_000, description="time for the blocks of our own prompt to come, else it is degraded")
    ] = 8_000
    prefill_ms_per_thousand_tokens: Annotated[
        int, Meta(ge=0, description="of one engine, for predictions; 0: the Mooncake paper's machine and model")
    ] = 0
    kv_token_bytes: Annotated[int, Meta(ge=0, description="KV of one token, for predictions; 0: the paper's model")] = 0
    fetch_bytes_per_second: Annotated[
        int, Meta(ge=0, description="from another host, for predictions; 0: the paper's network")
    ] = 0
    disk_bytes_per_second: Annotated[int, Meta(ge=0, description="from the own disk, for predictions; 0: 6 GB/s")] = 0


class ClientSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`moonpool.connect()` and everything built on it."""

    node: Annotated[
        str, Meta(max_length=255, description='node to use: host:port or unix:/path; "" is node.socket_path')
    ] = ""
    tenant: Annotated[Name, Meta(min_length=1, description="whose objects this client sees")] = "default"
    name: Annotated[Name, Meta(description='label of this client in /status; "" is program and process id')] = ""
    remote_reads: Annotated[bool, Meta(description="read from other nodes what the own node does not have")] = True
    rail_count: Annotated[
        int, Meta(ge=0, le=64, description="connections that move bytes from and to another host's node")
    ] = 2
    shared_memory: Annotated[bool, Meta(description="map the segment where the node allows it")] = True
    connect_timeout_ms: Annotated[int, Meta(ge=1, le=60_000, description="one try to connect")] = 2_000
    timeout_ms: Annotated[
        int, Meta(ge=1, le=600_000, description="put, get, clear: keys not done by then are misses")
    ] = 5_000
    control_timeout_ms: Annotated[int, Meta(ge=1, le=60_000, description="exists, remove, pin, why, list, status")] = (
        2_000
    )
    match_budget_ms: Annotated[int, Meta(ge=1, le=1_000, description="a look-up; no answer by then is no hit")] = 2


class TransferSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`moonpool.TransferEngine`, and rails between nodes and clients."""

    timeout_ms: Annotated[int, Meta(ge=1, le=600_000, description="a transfer that is not done by then has failed")] = (
        10_000
    )
    connect_timeout_ms: Annotated[int, Meta(ge=1, le=60_000, description="one try to connect a rail")] = 2_000
    slice_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=64 * MIB, description="longer operations are cut into slices of so much")
    ] = 1 * MIB
    inflight_bytes: Annotated[
        int, Meta(ge=64 * KIB, le=GIB, description="under way on one rail and not acknowledged")
    ] = 4 * MIB
    stall_ms: Annotated[
        int, Meta(ge=10, le=60_000, description="a rail without progress for so long is given up for another")
    ] = 300
    topology_file: Annotated[
        str, Meta(description="TOML that overrides what sysfs says of network devices and memory; empty: none")
    ] = ""
    silence_ms: Annotated[
        int, Meta(ge=50, le=600_000, description="a peer that is silent in the middle of a slice is dropped")
    ] = 10_000
    handshake_ms: Annotated[int, Meta(ge=50, le=60_000, description="time to prove knowledge of the secret")] = 2_000
    rail_thread_count: Annotated[int, Meta(ge=1, le=64, description="threads that serve rails of peers")] = 2
    rail_count: Annotated[int, Meta(ge=1, le=65_536, description="rails of peers at a time")] = 256
    region_count: Annotated[int, Meta(ge=1, le=2**20, description="registered regions")] = 4_096
    message_count: Annotated[int, Meta(ge=1, le=2**20, description="messages that wait for the program")] = 1_024
    transfer_count: Annotated[
        int, Meta(ge=1, le=2**20, description="transfers to one peer that are submitted and not done")
    ] = 4_096


class ConnectorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Connectors inside engines."""

    engine_id: Annotated[Name, Meta(description='label of the engine in /status; "" is drawn at start')] = ""
    load: Annotated[bool, Meta(description="offer the engine blocks from the pool")] = True
    save: Annotated[bool, Meta(description="store the engine's blocks in the pool")] = True
    share_media: Annotated[
        bool, Meta(description="share blocks whose hash covers image ids or embeddings supplied by clients")
    ] = False
    adapters_stay: Annotated[
        bool,
        Meta(
            description="LoRA adapters neither change on disk nor are loaded over others while engines run; "
            "else only those that are older than the engine are shared"
        ),
    ] = False
    lookup_budget_ms: Annotated[int, Meta(ge=1, le=1_000, description="a look-up inside the engine's step")] = 2
    pending_ms_max: Annotated[
        int, Meta(ge=0, le=1_000, description="how long a request may wait for a look-up that is under way")
    ] = 20
    breaker_failure_count: Annotated[
        int, Meta(ge=1, le=1_000, description="look-ups out of budget in a row that open the breaker")
    ] = 2
    retry_ms_min: Annotated[int, Meta(ge=1, le=60_000, description="how long a breaker stays open at first")] = 50
    retry_ms_max: Annotated[int, Meta(ge=1, le=60_000, description="how long a breaker stays open at most")] = 250
    load_call_ms: Annotated[int, Meta(ge=1, le=60_000, description="one native read; a stopped node costs this")] = 800
    load_deadline_ms: Annotated[
        int, Meta(ge=10, le=600_000, description="a load not done by then is recomputed by the engine")
    ] = 10_000
    save_call_ms: Annotated[
        int, Meta(ge=1, le=60_000, description="one native put; a stopped node costs the engine's step this, once")
    ] = 250
    save_deadline_ms: Annotated[
        int, Meta(ge=1, le=60_000, description="all saves of one step together; the rest is offered again later")
    ] = 500
    transfer_bytes_max: Annotated[int, Meta(ge=1, le=4 * GIB, description="moved by one native call")] = 16 * MIB
    load_block_count_min: Annotated[
        int, Meta(ge=1, le=65_536, description="fewer blocks than this are recomputed, not loaded")
    ] = 1
    request_count_max: Annotated[int, Meta(ge=1, le=2**20, description="requests that are tracked at a time")] = 65_536
    outcome_count: Annotated[int, Meta(ge=0, le=4_096, description="last requests that /status and `why` show")] = 64
    describe_interval_ms: Annotated[
        int, Meta(ge=50, le=60_000, description="how often an engine tells the node about itself")
    ] = 500
    event_host: Annotated[
        str,
        Meta(description="name or address of this host for those who listen to the engine's KV events elsewhere"),
    ] = "127.0.0.1"
    report_path: Annotated[
        str, Meta(description='file to which each request\'s outcome is appended as a JSON line; "" for none')
    ] = ""


class TelemetrySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Logs and the HTTP face of every process."""

    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level logged")] = "info"
    http_start_ms: Annotated[int, Meta(ge=100, le=60_000, description="time for the HTTP face to listen")] = 5_000
    http_stop_ms: Annotated[int, Meta(ge=100, le=60_000, description="time for open HTTP requests to end")] = 2_000
    http_status_ms: Annotated[int, Meta(ge=100, le=60_000, description="time for /status and /metrics to answer")] = (
        5_000
    )
    http_request_ms: Annotated[
        int, Meta(ge=200, le=60_000, description="one HTTP connection, from its first byte to its last")
    ] = 10_000
    http_connection_count: Annotated[int, Meta(ge=1, le=65_536, description="HTTP requests answered at a time")] = 64
    http_body_bytes: Annotated[int, Meta(ge=KIB, le=GIB, description="largest body of an HTTP request")] = 16 * MIB


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one process. Loaded by `moonpool.config.load`; paths and sizes are final after that."""

    runtime_folder: Annotated[
        str, Meta(description='sockets and secret; "" is $XDG_RUNTIME_DIR/moonpool, else /tmp/moonpool-<uid>')
    ] = ""
    secret_file: Annotated[
        str, Meta(description='cluster secret; "" is a file in the runtime folder, made by whoever comes first')
    ] = ""
    node: NodeSettings = field(default_factory=NodeSettings)
    directory: DirectorySettings = field(default_factory=DirectorySettings)
    conductor: ConductorSettings = field(default_factory=ConductorSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    transfer: TransferSettings = field(default_factory=TransferSettings)
    connector: ConnectorSettings = field(default_factory=ConnectorSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)


def native_limits(limits: NodeLimits | DirectoryLimits) -> dict[str, int]:
    """The `limits` argument of NodeServer or DirectoryServer."""
    return {name: int(value) for name, value in msgspec.structs.asdict(limits).items()}
