"""Looks at the node and the directory of this host, again and again, over the same two connections."""

from __future__ import annotations

import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from moonpool import _native, config
from moonpool.errors import ConfigError
from moonpool.pool.evidence import directory_address

if TYPE_CHECKING:
    from moonpool.cli.settings import Settings


class Watch:
    """Status documents without the memory of the pool: nothing is mapped, nothing held."""

    def __init__(self, settings: Settings, *, timeout_ms: int) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._node: _native.NodeClient | None = None
        self._directory: _native.DirectoryClient | None = None

    def _open(self) -> None:
        """Connect, once there is a secret: before that nothing was ever started in the runtime folder."""
        if self._node is not None:
            return
        chosen = self._settings.config
        try:
            secret = config.secret_key(config.load_secret(chosen.runtime_folder, chosen.secret_file))
        except ConfigError as error:
            if error.kind != "secret_missing" or chosen.secret_file:
                raise
            return
        self._node = _native.NodeClient(
            chosen.client.node or chosen.node.socket_path,
            secret=secret,
            tenant=chosen.client.tenant,
            name=chosen.client.name,
            connect_timeout_ms=self._timeout_ms,
            shared_memory=False,
        )
        self._directory = _native.DirectoryClient(
            directory_address(chosen),
            secret=secret,
            tenant=chosen.client.tenant,
            name=chosen.client.name,
            connect_timeout_ms=self._timeout_ms,
        )
        self._node.connect(self._timeout_ms)
        self._directory.connect(self._timeout_ms)

    def node(self) -> dict[str, Any] | None:
        """The node's status; None when it does not answer in time."""
        self._open()
        return None if self._node is None else _document(self._node, self._timeout_ms)

    def directory(self) -> dict[str, Any] | None:
        """The directory's status; None when it does not answer in time."""
        self._open()
        return None if self._directory is None else _document(self._directory, self._timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for client in (self._node, self._directory):
            if client is not None:
                client.close()


def _document(client: _native.NodeClient | _native.DirectoryClient, timeout_ms: int) -> dict[str, Any] | None:
    """Parsed, and without the watcher's own connection; None when there is no answer."""
    text = client.stat(timeout_ms=timeout_ms)
    if text is None:
        return None
    document: dict[str, Any] = json.loads(text)
    own = client.info["connection"]
    others = [item for item in document.get("connections", []) if item.get("connection") != own]
    return {**document, "connections": others}
