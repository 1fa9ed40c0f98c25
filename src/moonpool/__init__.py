"""Moonpool: one shared KV cache for all the LLM engines of a cluster.

Importing this opens nothing and loads little: every name is fetched from its room when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moonpool._native import Layout, Tags
    from moonpool.errors import (
        AccessDenied,
        ClosedError,
        ConfigError,
        IdentityError,
        MoonpoolError,
        PeerUnavailable,
        ProtocolError,
        UsageError,
        VersionMismatch,
    )
    from moonpool.pool.awaitable import AsyncPool
    from moonpool.pool.client import Pool
    from moonpool.pool.connect import aconnect, connect
    from moonpool.pool.values import Pieces
    from moonpool.pool.views import Views
    from moonpool.transfer.engine import TransferEngine
    from moonpool.transfer.operations import Read, Write
    from moonpool.transfer.peer import Transfer, TransferPeer
    from moonpool.transfer.regions import Region, RemoteRegion
    from moonpool.transfer.results import Message, Priority, TransferFailure, TransferResult
    from moonpool.types import GroupRule, Match, PutResult, ReadResult, Reason, Status, Tier

_ROOMS = {
    "moonpool._native": ("Layout", "Tags"),
    "moonpool.errors": (
        "AccessDenied",
        "ClosedError",
        "ConfigError",
        "IdentityError",
        "MoonpoolError",
        "PeerUnavailable",
        "ProtocolError",
        "UsageError",
        "VersionMismatch",
    ),
    "moonpool.pool.client": ("Pool",),
    "moonpool.pool.awaitable": ("AsyncPool",),
    "moonpool.pool.connect": ("aconnect", "connect"),
    "moonpool.pool.values": ("Pieces",),
    "moonpool.pool.views": ("Views",),
    "moonpool.transfer.engine": ("TransferEngine",),
    "moonpool.transfer.operations": ("Read", "Write"),
    "moonpool.transfer.peer": ("Transfer", "TransferPeer"),
    "moonpool.transfer.regions": ("Region", "RemoteRegion"),
    "moonpool.transfer.results": ("Message", "Priority", "TransferFailure", "TransferResult"),
    "moonpool.types": ("GroupRule", "Match", "PutResult", "ReadResult", "Reason", "Status", "Tier"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "AccessDenied",
    "AsyncPool",
    "ClosedError",
    "ConfigError",
    "GroupRule",
    "IdentityError",
    "Layout",
    "Match",
    "Message",
    "MoonpoolError",
    "PeerUnavailable",
    "Pieces",
    "Pool",
    "Priority",
    "ProtocolError",
    "PutResult",
    "Read",
    "ReadResult",
    "Reason",
    "Region",
    "RemoteRegion",
    "Status",
    "Tags",
    "Tier",
    "Transfer",
    "TransferEngine",
    "TransferFailure",
    "TransferPeer",
    "TransferResult",
    "UsageError",
    "VersionMismatch",
    "Views",
    "Write",
    "aconnect",
    "connect",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return importlib.import_module("moonpool._native").__version__
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module 'moonpool' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
