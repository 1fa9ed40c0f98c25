"""`connect()`: from a name, or from nothing, to a `Pool`."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moonpool import _native, config
from moonpool.config import ClientSettings, Config
from moonpool.errors import AccessDenied, ConfigError, MoonpoolError, PeerUnavailable, ProtocolError, UsageError
from moonpool.pool.client import Pool
from moonpool.pool.embedded import EmbeddedNode
from moonpool.pool.holders import Holders
from moonpool.pool.lookup import Lookup
from moonpool.pool.reading import Reader
from moonpool.types import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moonpool.pool.awaitable import AsyncPool

# A directory is optional, so connect() does not wait long for one that is stopped.
_DIRECTORY_CONNECT_MS = 200
# A lazy pool takes a node that is there, and does not wait for one that is stopped.
_LAZY_CONNECT_MS = 50
# Calls of one AsyncPool that are made at a time; the others wait for their turn.
_AWAIT_THREAD_COUNT = 4


def connect(
    target: str | os.PathLike[str] | None = None,
    *,
    embedded: bool = False,
    segment_bytes: int | None = None,
    lazy: bool = False,
    **settings: Any,
) -> Pool:
    """Connect to a node: that of this host, or another host's.

    target: None takes the settings (`moonpool config show`); else the path of a node's socket or of its runtime
    folder, also as ``unix:/path``, or ``host:port`` (``[v6]:port``) of a node that listens there. embedded: a node of
    segment_bytes (256 MiB) inside this process, with no service and no configuration; it ends with the pool. lazy:
    return at once, and connect with the first call: until a node is there everything is a miss. settings: those of
    `moonpool.config.ClientSettings`, such as tenant.

    Raises PeerUnavailable when no node answers in time, AccessDenied, ProtocolError, ConfigError, UsageError.
    """
    if embedded:
        if target is not None:
            raise UsageError("embedded=True brings its own node; leave the target away")
        return _connect_embedded(segment_bytes, settings)
    if segment_bytes is not None:
        raise UsageError("segment_bytes belongs to embedded=True; a node's size is in its settings")
    loaded = _load(target, settings)
    return open_pool(loaded, lazy=lazy)


async def aconnect(
    target: str | os.PathLike[str] | None = None,
    *,
    embedded: bool = False,
    segment_bytes: int | None = None,
    lazy: bool = False,
    **settings: Any,
) -> AsyncPool:
    """As `connect`, for asyncio: ``async with await moonpool.aconnect() as pool: …``. The loop goes on meanwhile."""
    import asyncio  # here: programs without it need not load it

    from moonpool.pool.awaitable import AsyncPool

    begin = functools.partial(connect, target, embedded=embedded, segment_bytes=segment_bytes, lazy=lazy, **settings)
    return AsyncPool(await asyncio.to_thread(begin), thread_count=_AWAIT_THREAD_COUNT)


def open_pool(settings: Config, *, lazy: bool = False) -> Pool:
    """A pool on the node and the directories that the settings name."""
    client = settings.client
    address = client.node or config.UNIX_PREFIX + settings.node.socket_path
    secret = _secret(settings, address, create=lazy)
    node = _node_client(address, secret, client)
    directories = [
        _native.DirectoryClient(
            path,
            secret=secret,
            tenant=client.tenant,
            name=client.name,
            connect_timeout_ms=min(client.connect_timeout_ms, _DIRECTORY_CONNECT_MS),
        )
        for path in settings.node.directories
    ]
    if lazy:
        node.connect(min(client.connect_timeout_ms, _LAZY_CONNECT_MS))
    else:
        _connect_now(node, address, client.connect_timeout_ms)
    for directory in directories:
        directory.connect(_LAZY_CONNECT_MS if lazy else _DIRECTORY_CONNECT_MS)
    holders = Holders(lambda place: _node_client(place, secret, client)) if client.remote_reads else None
    return Pool(node, Reader(node, Lookup(node, directories, address), holders), client, address=address)


def _secret(settings: Config, address: str, *, create: bool) -> bytes:
    """The cluster's; only one who is ready to wait for a node makes a secret and a folder where there are none."""
    try:
        load = config.load_or_create_secret if create else config.load_secret
        return config.secret_key(load(settings.runtime_folder, settings.secret_file))
    except ConfigError as error:
        if error.kind != "secret_missing" or settings.secret_file:
            raise
        raise PeerUnavailable(
            f"no node was ever started for {address} (no secret in {settings.runtime_folder}); "
            "start one with `moonpool up`, or check runtime_folder"
        ) from error


def _connect_embedded(segment_bytes: int | None, settings: Mapping[str, Any]) -> Pool:
    client = _with_settings(ClientSettings(name="embedded"), settings)
    server = EmbeddedNode(segment_bytes, tenant=client.tenant)
    address = config.UNIX_PREFIX + server.socket_path
    node = _node_client(address, server.secret, client)
    try:
        _connect_now(node, address, client.connect_timeout_ms)
    except MoonpoolError:
        server.close()
        raise
    return Pool(node, Reader(node, Lookup(node, (), address)), client, address=address, on_close=server.close)


def _node_client(address: str, secret: bytes, client: ClientSettings) -> _native.NodeClient:
    return _native.NodeClient(
        address,
        secret=secret,
        tenant=client.tenant,
        name=client.name,
        connect_timeout_ms=client.connect_timeout_ms,
        shared_memory=client.shared_memory,
        rail_count=client.rail_count,
    )


def _connect_now(node: _native.NodeClient, address: str, timeout_ms: int) -> None:
    number, message = node.connect(timeout_ms)
    reason = Reason(number)
    if reason == Reason.NONE:
        return
    node.close()
    if reason == Reason.ACCESS_DENIED:
        raise AccessDenied(f"the node at {address} refused this client: {message}; check the secret and client.tenant")
    if reason == Reason.PROTOCOL:
        raise ProtocolError(f"no common language with the node at {address}: {message}")
    kind = "timed_out" if reason == Reason.TIMED_OUT else "unavailable"
    raise PeerUnavailable(
        f"no node answers at {address} ({message or reason.label}); start one with `moonpool up`", kind=kind
    )


def _load(target: str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> Config:
    overrides: dict[str, object] = {}
    if isinstance(target, str) and config.split_host_port(target) is not None:
        overrides = {"client.node": target}
    elif target is not None:
        path = _socket_path(target)
        overrides = {"runtime_folder": str(path.parent), "node.socket_path": str(path), "client.node": ""}
    loaded = config.load(overrides=overrides)
    return msgspec.structs.replace(loaded, client=_with_settings(loaded.client, settings))


def _with_settings(client: ClientSettings, settings: Mapping[str, Any]) -> ClientSettings:
    known = ClientSettings.__struct_fields__
    for name in settings:
        if name not in known:
            raise UsageError(f"unknown option {name!r} of connect(); there are: {', '.join(known)}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(client), **settings}, ClientSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"connect(): {error}", kind="bad_value") from error


def _socket_path(target: object) -> Path:
    """The socket that a target names."""
    if not isinstance(target, str | os.PathLike) or not (text := os.fspath(target)):
        raise UsageError(f"a target is host:port, or the path of a node's socket or runtime folder, not {target!r}")
    path = Path(text.removeprefix(config.UNIX_PREFIX)).expanduser().absolute()
    return path / "node.sock" if path.is_dir() else path
