"""The native core. Everything here releases the GIL while bytes move or while it waits.

Buffers of numbers ("u64 array") are anything with the buffer protocol and 8-byte items (array("Q"), memoryview,
a numpy or torch array), or a list of int. Statuses and reasons are the integers of `moonpool.types.Status` and
`moonpool.types.Reason` (same numbers as native/core/types.hpp).
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, final

from typing_extensions import Buffer

__version__: str
wire_versions: tuple[int, int]

Numbers: TypeAlias = Buffer | Sequence[int]

def siphash128(key: bytes, data: Buffer) -> bytes: ...
def key_digest(secret_key: bytes, tenant_id: int, key: bytes) -> bytes: ...
def crc32c(data: Buffer, crc: int = 0) -> int: ...
def crc32c_portable(data: Buffer, crc: int = 0) -> int: ...
def crc32c_combine(first: int, second: int, second_bytes: int) -> int: ...
def copy_crc32c(target: Buffer, source: Buffer) -> int: ...
def are_plain_keys(keys: list[Any], byte_count_max: int) -> bool:
    """Whether every key is bytes (of no subclass) with 1 to byte_count_max of them."""

def lie_within(addresses: Numbers, lengths: Numbers, start: int, last: int) -> bool:
    """Whether every [address, address + length) is not empty and lies inside the bytes start to last."""

def ascend_apart(addresses: Numbers, lengths: Numbers) -> bool:
    """Whether the ranges come in ascending order and share no byte."""

def address_of(data: Buffer, writable: bool = False) -> tuple[int, int]:
    """(address, bytes) of a contiguous buffer; BufferError if it is read-only and writable is asked for."""

@final
class Layout:
    """Where the pieces of a block lie: piece i of block n is at base[i] + n * stride[i], length bytes[i]."""
    def __init__(self, base: Numbers, stride: Numbers, piece_bytes: Numbers, block_count: int) -> None: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def piece_count(self) -> int: ...
    @property
    def block_count(self) -> int: ...

@final
class Tags:
    """One tag per key of a put, all of one namespace and one kv_group."""
    def __init__(
        self,
        namespace_id: int,
        block_hashes: Numbers,
        parent_hashes: Numbers,
        *,
        kv_group: int = 0,
        shard_index: int = 0,
        shard_count: int = 1,
        bundle_count: int = 1,
        chained: bool = True,
    ) -> None: ...

@final
class PutOutcome:
    """Parallel lists, one item per key; each is made anew when it is asked for."""

    worked_count: int  # stored or present
    incarnation: int
    def __len__(self) -> int: ...
    @property
    def statuses(self) -> list[int]: ...
    @property
    def reasons(self) -> list[int]: ...
    @property
    def lengths(self) -> list[int]: ...  # of the resident value, with present and conflict
    @property
    def checksums(self) -> list[int]: ...  # of the resident value; of ours when stored
    @property
    def generations(self) -> list[int]: ...  # the hint, with the holder's incarnation

@final
class ReadOutcome:
    worked_count: int  # hit or done
    byte_count: int  # verified and applied
    def __len__(self) -> int: ...
    @property
    def statuses(self) -> list[int]: ...
    @property
    def reasons(self) -> list[int]: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def checksums(self) -> list[int]: ...
    @property
    def generations(self) -> list[int]: ...

@final
class View:
    """A read-only buffer over a held object. The hold ends when the last exporter is gone and release() was
    called (or the View was collected)."""
    def verify(self) -> bool: ...
    def release(self) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class MatchOutcome:
    fetchable: int
    holders: list[tuple[str, int, int, int]]  # name, incarnation, block_count, tier_mask; longest first
    warming: bool
    reachable: bool  # False: nobody could be asked in time

@final
class NodeClient:
    """One connection to a node, made again by itself after the node was away. Calls are synchronous: the
    calling thread does its own I/O; several threads may share it. A call never waits longer than timeout_ms
    (then the keys not done are miss/refused with `timed_out` or `unavailable`). After a failed connect the next
    tries are refused at once for a growing while (50 ms … 1 s), so that an engine never waits for a dead node.
    A fork is noticed: the child gets a connection and mappings of its own. path: a socket's path, unix:/path or
    host:port."""
    def __init__(
        self,
        path: str,
        *,
        secret: bytes,
        tenant: str = "default",
        name: str = "",
        connect_timeout_ms: int = 2000,
        shared_memory: bool = True,
        rail_count: int = 2,
    ) -> None:
        """rail_count: connections that move the bytes of values, where the node is reached by host:port."""
    def connect(self, timeout_ms: int) -> tuple[int, str]:
        """(reason, message); reason 0 when connected. Never raises for an absent peer."""
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def connected(self) -> bool: ...
    @property
    def info(self) -> dict[str, Any]:
        """incarnation, node, site, shared_memory, connection, tenant_id, arena_bytes, transport, reconnect_count"""
    def put(
        self,
        keys: Sequence[bytes],
        addresses: Numbers,
        lengths: Numbers,
        piece_counts: Numbers | None = None,
        *,
        tags: Tags | None = None,
        bundle_id: int = 0,
        bundle_count: int = 1,
        priority: int = 0,
        keep_at_least_ms: int = 0,
        keep_at_most_ms: int = 0,
        timeout_ms: int = 5000,
    ) -> PutOutcome:
        """Value i is the concatenation of its piece_counts[i] pieces (None: one piece each)."""
    def put_blocks(
        self,
        layout: Layout,
        block_numbers: Numbers,
        keys: Sequence[bytes],
        *,
        tags: Tags | None = None,
        priority: int = 0,
        keep_at_least_ms: int = 0,
        keep_at_most_ms: int = 0,
        timeout_ms: int = 5000,
    ) -> PutOutcome: ...
    def get_into(
        self,
        keys: Sequence[bytes],
        addresses: Numbers,
        lengths: Numbers,
        piece_counts: Numbers | None = None,
        *,
        timeout_ms: int = 5000,
    ) -> ReadOutcome:
        """Copies each value into its pieces, verified in the same pass. The pieces' total must equal the
        object's length, else miss(wrong_length) and nothing of that value is touched. On miss(damaged) the
        pieces may hold foreign bytes: the caller must not use them."""
    def get_blocks(
        self, layout: Layout, block_numbers: Numbers, keys: Sequence[bytes], *, timeout_ms: int = 5000
    ) -> ReadOutcome: ...
    def get_views(
        self, keys: Sequence[bytes], *, verify: bool = True, timeout_ms: int = 5000
    ) -> tuple[list[View | None], ReadOutcome]: ...
    def exists(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> ReadOutcome: ...
    def remove(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> ReadOutcome: ...
    def pin(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> ReadOutcome: ...
    def unpin(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> ReadOutcome: ...
    def why(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> ReadOutcome: ...
    def clear(self, namespace_id: int, *, timeout_ms: int = 5000) -> int:
        """Objects dropped, or -1 when the node could not be asked."""
    def list(
        self, prefix: bytes, cursor: int, count: int, *, timeout_ms: int = 2000
    ) -> tuple[int, list[dict[str, Any]]]:
        """(next cursor or 0, items with key, length, namespace_id, block_hash, kv_group, pinned, checksum, age_ms)"""
    def match(
        self, namespace_id: int, block_hashes: Numbers, groups: Sequence[tuple[int, int, int]], *, timeout_ms: int = 2
    ) -> MatchOutcome:
        """The node's own blocks. groups: (kv_group, shard_count, window_block_count; 0 = full attention)."""
    def describe(self, document: str, *, timeout_ms: int = 2000) -> bool:
        """JSON about this client (engine, identity, counters) for /status; sent again after each reconnect."""
    def stat(self, *, timeout_ms: int = 2000) -> str | None:
        """The node's /status document (JSON), or None."""
    def ping(self, *, timeout_ms: int = 2000) -> bool: ...

@final
class DirectoryClient:
    """As NodeClient, towards a directory."""
    def __init__(
        self, path: str, *, secret: bytes, tenant: str = "default", name: str = "", connect_timeout_ms: int = 2000
    ) -> None: ...
    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def connected(self) -> bool: ...
    @property
    def info(self) -> dict[str, Any]: ...
    def match(
        self, namespace_id: int, block_hashes: Numbers, groups: Sequence[tuple[int, int, int]], *, timeout_ms: int = 2
    ) -> MatchOutcome: ...
    def locate(self, keys: Sequence[bytes], *, timeout_ms: int = 2000) -> list[list[tuple[str, int, str]]] | None:
        """Per key the holders: (name, incarnation, address). None when the directory could not be asked."""
    def describe(self, document: str, *, timeout_ms: int = 2000) -> bool: ...
    def stat(self, *, timeout_ms: int = 2000) -> str | None: ...
    def ping(self, *, timeout_ms: int = 2000) -> bool: ...

@final
class NodeServer:
    """A node's native side: event loop, segment, object table, publishing to directories. Its own threads; the
    GIL is never needed."""
    def __init__(
        self,
        *,
        path: str,
        name: str,
        site: str,
        secret: bytes,
        segment_bytes: int,
        arena_bytes: int,
        tenants: Sequence[str],
        directories: Sequence[str],
        limits: dict[str, int],
        listen: Sequence[str] = (),
        advertise: str = "",
    ) -> None:
        """tenants: who may connect; the first one is the segment's trust domain (shared memory), the others use
        the socket. An empty list: any tenant, "default" gets shared memory. limits: held_bytes_per_connection,
        reserved_bytes_per_connection, pinned_bytes, object_count, why_count, connection_count, reservation_ms,
        copy_hold_ms, handshake_ms, frame_ms (a half-sent frame), remote_silent_ms, small_put_bytes. directories:
        addresses to tell. listen: host:port to serve other hosts at, port 0 for any; advertise: host or host:port
        that they are told, empty for the first of listen."""
    def start(self) -> None:
        """Binds, begins to populate the segment, serves. OSError when the path is taken or memory is refused."""
    def stop(self) -> None: ...
    def status(self) -> str:
        """JSON: incarnation, name, site, uptime_ms, state (warming|ready|stopping), segment, table (TableStats),
        connections [{connection, name, tenant, process_id, transport, held_bytes, reserved_bytes, silent_ms,
        description}], directories [{path, state, acknowledged_sequence, lag}], counters (misses by reason,
        refused handshakes by reason, malformed frames, …)."""
    def counters(self) -> dict[str, int]:
        """Flat, for Prometheus: misses_evicted, bytes_read_total, …"""
    def check_integrity(self) -> str: ...

@final
class DirectoryServer:
    def __init__(
        self,
        *,
        path: str,
        name: str,
        secret: bytes,
        entry_count_max: int,
        limits: dict[str, int],
        listen: Sequence[str] = (),
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def status(self) -> str:
        """JSON: incarnation, name, uptime_ms, state, index (IndexStats), holders [{name, incarnation, site,
        warming, sequence, entry_count, last_heard_ms}], connections, counters."""
    def counters(self) -> dict[str, int]: ...
    def check_integrity(self) -> str: ...

@final
class TransferOutcome:
    failures: list[tuple[int, int, bool]]  # operation, reason, may be applied later
    checksums: list[int]  # one per operation, where they were asked for
    message_reason: int

@final
class Transfer:
    @property
    def done(self) -> bool: ...
    def wait(self, timeout_ms: int) -> bool:
        """False: still under way."""
    def watch(self, ticket: int) -> None:
        """Post the ticket to the engine's completion queue when it is done."""
    def outcome(self, checksum: bool, /) -> TransferOutcome:
        """Only when done."""

@final
class TransferPeer:
    """items: (write, token, bytes of the remote region, writable, offsets, local addresses, lengths), the last three
    Numbers of one length. IndexError for memory outside its region, here or there; nothing has moved then."""
    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def run(
        self,
        items: Sequence[tuple[bool, bytes, int, bool, Numbers, Numbers, Numbers]],
        *,
        priority: int,
        timeout_ms: int,
        message: bytes,
        checksum: bool,
    ) -> TransferOutcome: ...
    def run_one(
        self,
        write: bool,
        remote: tuple[bytes, int, bool],
        place: tuple[int, int, int],
        timeout_ms: int,
        /,
    ) -> tuple[int, bool]:
        """place: remote offset, local address, length. (reason, may be applied later) of a single operation."""
    def submit(
        self,
        items: Sequence[tuple[bool, bytes, int, bool, Numbers, Numbers, Numbers]],
        *,
        priority: int,
        timeout_ms: int,
        message: bytes,
        checksum: bool,
    ) -> Transfer: ...
    def probe(self, timeout_ms: int) -> int: ...
    def rails(self) -> list[dict[str, Any]]: ...
    def transports(self) -> list[str]: ...
    def close(self) -> None: ...

@final
class TransferEngine:
    def __init__(self, *, name: str, secret: bytes, limits: dict[str, int]) -> None: ...
    def add_region(self, address: int, length: int, writable: bool) -> bytes:
        """Its token."""
    def remove_region(self, token: bytes, timeout_ms: int) -> bool:
        """False: somebody is still inside."""
    def is_region_free(self, token: bytes, /) -> bool: ...
    def listen(self, addresses: list[str]) -> list[str]: ...
    def peer(
        self, routes: Sequence[tuple[str, str, int, int]], *, secret: bytes, name: str, limits: dict[str, int]
    ) -> TransferPeer:
        """A route: peer, local host or "", nominal bytes per second or 0, locality in thousandths."""
    def take_message(self, timeout_ms: int) -> tuple[str, bytes] | None: ...
    def watch_messages(self, ticket: int, /) -> None: ...
    def take_completed(self) -> list[int]: ...
    @property
    def completion_descriptor(self) -> int: ...
    def counters(self) -> dict[str, int]: ...
    def close(self) -> None: ...

# The pure structures, for property tests, simulators and benchmarks. -----------------------------------------

@final
class Allocator:
    def __init__(self, capacity_bytes: int) -> None: ...
    def allocate(self, size_bytes: int) -> int | None: ...
    def free(self, offset: int) -> None: ...
    @property
    def capacity_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def largest_free_bytes(self) -> int: ...
    def check_integrity(self) -> str: ...

@final
class TransferPlan:
    """See native/core/transfer_plan.hpp, with its default limits. Results are dicts of the C++ structs' fields."""
    def __init__(self) -> None: ...
    def add_rail(self, nominal_bytes_per_second: int = 0, locality_permille: int = 1000) -> int: ...
    def rail(self, rail: int, /) -> dict[str, int]: ...
    def predicted_us(self, rail: int, length: int, /) -> int: ...
    def connect_at_us(self, rail: int, /) -> int: ...
    def rails_to_connect(self, now_us: int) -> list[int]: ...
    def connecting(self, rail: int) -> None: ...
    def connected(self, rail: int, connection: int, now_us: int) -> None: ...
    def failed(self, rail: int, now_us: int) -> None: ...
    def drops_owed(self) -> list[int]: ...
    def dropped(self, connection: int) -> None: ...
    def add(self, operations: list[tuple[int, bool]], priority: int, deadline_us: int, now_us: int) -> int | None: ...
    def give_up(self, transfer: int, reason: int, /) -> list[dict[str, int]]: ...
    def expire(self, now_us: int, /) -> list[dict[str, int]]: ...
    def next(self, now_us: int, /) -> dict[str, int] | None: ...
    def finished(self, slice: int, now_us: int) -> None: ...
    def refused(self, slice: int, reason: int, now_us: int, /) -> None: ...
    def withdrawn(self, slice: int) -> None: ...
    def stalled(self, now_us: int) -> list[int]: ...
    def wake_at_us(self) -> int: ...
    def take_done(self) -> list[dict[str, Any]]: ...
    def check_integrity(self) -> str: ...

@final
class ObjectTable:
    """See native/core/object_table.hpp. Digests are 16 bytes; results are dicts of the C++ struct's fields.
    limits has the names of TableLimits; spec those of PutSpec and Tag, and arena_preferred."""
    def __init__(self, arena_bytes: Sequence[int], limits: dict[str, int]) -> None: ...
    def reserve(self, key: bytes, length: int, connection: int, now_ms: int, **spec: Any) -> dict[str, Any]: ...
    def commit(self, connection: int, generation: int, checksum: int, now_ms: int) -> dict[str, Any]: ...
    def abort(self, connection: int, generation: int) -> dict[str, Any]: ...
    def quarantine_reservations_older_than(self, reserved_before_ms: int) -> None: ...
    def hold(
        self, key: bytes, connection: int, deadline_ms: int, now_ms: int, tenant_id: int = 0
    ) -> dict[str, Any]: ...
    def release(self, connection: int, generation: int) -> dict[str, Any]: ...
    def held(self, connection: int, generation: int) -> dict[str, Any]: ...
    def reserved(self, connection: int, generation: int) -> dict[str, Any]: ...
    def revoke_holds(self, now_ms: int) -> None: ...
    def touch(self, generation: int, tenant_id: int = 0) -> dict[str, Any]: ...
    def peek(self, key: bytes, now_ms: int, tenant_id: int = 0) -> dict[str, Any]: ...
    def remove(self, key: bytes, now_ms: int, tenant_id: int = 0, reason: int = 3) -> dict[str, Any]: ...
    def pin(self, key: bytes, now_ms: int, tenant_id: int = 0) -> dict[str, Any]: ...
    def unpin(self, key: bytes, tenant_id: int = 0) -> dict[str, Any]: ...
    def clear(self, namespace_id: int, now_ms: int) -> int: ...
    def drop_connection(self, connection: int) -> None: ...
    def quarantine_connection(self, connection: int) -> None: ...
    def expire(self, now_ms: int, count_max: int) -> None: ...
    def why(self, key: bytes, tenant_id: int = 0) -> int: ...
    def take_events(self) -> list[dict[str, Any]]: ...
    def take_freed(self) -> list[dict[str, Any]]: ...
    def take_residencies(self) -> list[dict[str, Any]]: ...
    def snapshot(self) -> list[dict[str, Any]]: ...
    def stats(self) -> dict[str, int]: ...
    def check_integrity(self) -> str: ...

@final
class BlockIndex:
    def __init__(self, entry_count_max: int) -> None: ...
    def add_holder(self) -> int: ...
    def forget(self, holder: int) -> None: ...
    def stored(self, holder: int, digests: Sequence[bytes], tags: Tags | None = None, tier_mask: int = 2) -> int:
        """How many were taken."""
    def removed(self, holder: int, digests: Sequence[bytes], tags: Tags | None = None, tier_mask: int = 2) -> None: ...
    def blocks_stored(
        self, holder: int, namespace_id: int, block_hashes: Numbers, kv_group: int = 0, tier_mask: int = 1
    ) -> int:
        """Blocks that an engine holds: they have no key. How many were taken."""
    def blocks_removed(
        self, holder: int, namespace_id: int, block_hashes: Numbers, kv_group: int = 0, tier_mask: int = 1
    ) -> None: ...
    def cleared(self, holder: int) -> None: ...
    def snapshot_begin(self, holder: int) -> None: ...
    def snapshot_end(self, holder: int) -> None: ...
    def entry_count(self, holder: int) -> int: ...
    def match(
        self,
        namespace_id: int,
        block_hashes: Numbers,
        groups: Sequence[tuple[int, int, int]],
        tier_mask: int = 15,
    ) -> tuple[int, list[tuple[int, int, int]]]:
        """With a tier mask only what lies in those tiers counts."""
    def locate(self, digest: bytes) -> list[int]: ...
    def stats(self) -> dict[str, int]: ...
    def check_integrity(self) -> str: ...

def decode_message(message_type: int, payload: Buffer) -> bool:
    """Whether payload is exactly one well-formed message of that type (fuzz and hostile-input tests)."""
