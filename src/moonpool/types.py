"""Plain values that every room shares.

`Status`, `Reason` and `Tier` carry the numbers of ``native/core/types.hpp``: they are on the wire and append
only. A result is true when the thing worked; otherwise its reason says what happened, `Reason.meaning` in words
and `Reason.advice` with what to do.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

KEY_BYTES_MAX = 1024


class Status(enum.IntEnum):
    """What became of one key."""

    STORED = 0  # put: committed by this call
    PRESENT = 1  # put: somebody committed it before, same length
    CONFLICT = 2  # put: present with another length or checksum
    NO_ROOM = 3  # put: nothing may be evicted for it
    REFUSED = 4  # put: see the reason
    HIT = 5  # read, exists
    MISS = 6  # read, exists: see the reason
    DONE = 7  # remove, pin, unpin, release


class Reason(enum.IntEnum):
    """Why."""

    NONE = 0
    NEVER_STORED = 1
    EVICTED = 2
    EXPIRED = 3
    REMOVED = 4
    DAMAGED = 5
    INCOMPLETE_BUNDLE = 6
    NOT_COMMITTED = 7
    NO_PARENT = 8
    KEY_TOO_LONG = 9
    VALUE_TOO_LARGE = 10
    WRONG_LENGTH = 11
    CONNECTION_LIMIT = 12
    NOT_YOURS = 13
    DEADLINE = 14
    UNAVAILABLE = 15
    TIMED_OUT = 16
    DIGEST_COLLISION = 17
    WARMING = 18
    ACCESS_DENIED = 19
    WRONG_INCARNATION = 20
    CLEARED = 21
    ENGINE_GAVE_UP = 22
    BAD_REQUEST = 23
    PROTOCOL = 24
    UNKNOWN_REGION = 25
    OUT_OF_RANGE = 26
    READ_ONLY = 27
    CANCELLED = 28

    @property
    def label(self) -> str:
        """Lower-case name, as in metrics, JSON and the native header."""
        return self.name.lower()

    @property
    def meaning(self) -> str:
        """What it means, one line."""
        return REASON_TEXTS[self][0]

    @property
    def advice(self) -> str:
        """What to do about it, one line; empty where nothing need be done."""
        return REASON_TEXTS[self][1]


class Tier(enum.IntFlag):
    """Where bytes lie. Bits, so that one byte is a tier mask."""

    ENGINE = 1
    DRAM = 2
    DISK = 4
    COLD = 8

    @property
    def labels(self) -> list[str]:
        """Lower-case names of the tiers in this mask, nearest first."""
        return [tier.name.lower() for tier in Tier if tier in self and tier.name]


class Hint(msgspec.Struct, frozen=True, gc=False):
    """Who has the bytes, so that a reader may ask that holder at once instead of a directory."""

    address: str
    incarnation: int
    generation: int


class PutResult(msgspec.Struct, frozen=True):
    """Of one key of a put. True when the value is in the pool now, whoever brought it."""

    status: Status
    reason: Reason = Reason.NONE
    length: int = 0  # bytes of the resident value
    checksum: int = 0  # CRC32C of the resident value
    hint: Hint | None = None

    def __bool__(self) -> bool:
        return self.status in (Status.STORED, Status.PRESENT)


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """Of one key of a read, an existence check, a remove or a pin. True when it worked."""

    status: Status
    reason: Reason = Reason.NONE
    length: int = 0  # bytes of the object
    checksum: int = 0  # CRC32C of the object
    generation: int = 0
    byte_count: int = 0  # verified and applied by this call

    def __bool__(self) -> bool:
        return self.status in (Status.HIT, Status.DONE)


class GroupRule(NamedTuple):
    """Which cache rule a kv_group follows. A tuple, because the native `match` takes it as it is."""

    kv_group: int = 0
    shard_count: int = 1
    window_block_count: int = 0  # 0: full attention, else the last w blocks


class HolderMatch(msgspec.Struct, frozen=True, gc=False):
    """How much of a prefix one holder alone can serve."""

    name: str
    incarnation: int
    block_count: int
    tiers: Tier


class Match(msgspec.Struct, frozen=True):
    """Answer of a look-up. True when at least one block can be fetched."""

    fetchable_block_count: int = 0  # every group has what it needs, all shards somewhere
    holders: tuple[HolderMatch, ...] = ()  # longest first
    warming: bool = False  # the answering side is still being told
    reachable: bool = True  # False: nobody could be asked in time

    def __bool__(self) -> bool:
        return self.fetchable_block_count > 0


# One table for `why`, `doctor` and the documentation: what each reason means, what to do.
REASON_TEXTS: dict[Reason, tuple[str, str]] = {
    Reason.NONE: ("nothing to explain", ""),
    Reason.NEVER_STORED: (
        "nobody stored it, or so long ago that the node has forgotten it",
        "if an engine should have: `moonpool doctor` shows whether it saves, and into which namespace",
    ),
    Reason.EVICTED: (
        "made room for newer objects",
        "give the node more memory (node.segment_bytes), or pin what must stay",
    ),
    Reason.EXPIRED: ("its keep_at_most time ended", "put it with a longer keep_at_most_ms, or with 0 for none"),
    Reason.REMOVED: ("somebody removed it by request", ""),
    Reason.DAMAGED: (
        "checksum, length or generation did not fit, so the bytes were not used",
        "if it happens again, test the machine's memory and report it with /status of the node",
    ),
    Reason.INCOMPLETE_BUNDLE: (
        "committed, but other members of its bundle are not (yet)",
        "all shards of a block must be stored; look for a worker that does not save",
    ),
    Reason.NOT_COMMITTED: ("its writer has reserved it and not committed yet", "ask again in a moment"),
    Reason.NO_PARENT: (
        "the block before it in its chain is not on this node, so it would be useless",
        "put chains from the root on; an evicted parent is stored again with the next save",
    ),
    Reason.KEY_TOO_LONG: (f"keys have at most {KEY_BYTES_MAX} bytes", "use a digest of the long name as key"),
    Reason.VALUE_TOO_LARGE: (
        "the value does not fit into one arena",
        "raise node.arena_bytes (and node.segment_bytes), or store the value in parts",
    ),
    Reason.WRONG_LENGTH: (
        "the destination does not have the object's length; nothing was touched",
        "read `length` from exists(), or check that both sides use one block layout",
    ),
    Reason.CONNECTION_LIMIT: (
        "this connection holds, reserves or pins as much as one connection may",
        "release views, commit or abort what was reserved, or raise the node's limits",
    ),
    Reason.NOT_YOURS: (
        "the reservation or hold belongs to another connection, or is gone",
        "begin again: after a reconnect nothing of the old connection is valid",
    ),
    Reason.DEADLINE: (
        "the reservation or copy hold ended before the work was done",
        "the process was too slow or stopped; begin again",
    ),
    Reason.UNAVAILABLE: (
        "no connection to the peer, or this process may not map its memory",
        "start it with `moonpool up`, or check runtime_folder (clients reconnect by themselves) and `ulimit -v`",
    ),
    Reason.TIMED_OUT: (
        "the peer did not answer in the given time",
        "see whether the node is stopped or overloaded (`moonpool top`)",
    ),
    Reason.DIGEST_COLLISION: (
        "another key has the same digest, so this one is refused",
        "choose another key; if it happens twice the secret is not random",
    ),
    Reason.WARMING: (
        "the node is still populating its memory",
        "wait a few seconds; /status shows the progress",
    ),
    Reason.ACCESS_DENIED: (
        "it belongs to another tenant, or the verb is not allowed",
        "connect with the right tenant, and check node.tenants",
    ),
    Reason.WRONG_INCARNATION: (
        "the node was restarted since, and is another holder now",
        "begin again; the client has reconnected already",
    ),
    Reason.CLEARED: ("all objects of the namespace or of the node were dropped", ""),
    Reason.ENGINE_GAVE_UP: (
        "a load failed once for this request, so the engine recomputed and asked no more",
        "the reason of the failed load stands beside it",
    ),
    Reason.BAD_REQUEST: ("the request was understood and makes no sense", "report it: clients must not send such"),
    Reason.PROTOCOL: (
        "the peer spoke an unknown version or malformed bytes",
        "compare `moonpool --version` on both sides (doctor shows version skew)",
    ),
    Reason.UNKNOWN_REGION: (
        "the peer has no region with this token (any more)",
        "ask the peer for a fresh descriptor: it unregistered the memory, or was restarted",
    ),
    Reason.OUT_OF_RANGE: (
        "the slice does not lie inside the registered region; nothing was touched",
        "compare offset and length with the length in the region's descriptor",
    ),
    Reason.READ_ONLY: (
        "the region was registered for reading only; nothing was touched",
        "register it with writable=True on its owner's side",
    ),
    Reason.CANCELLED: (
        "its caller gave it up before it was done",
        "submit it again if the bytes are still wanted",
    ),
}
