"""A node and a directory that serve by TCP on this host, as if each client were elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from moonpool import Pool
from moonpool.testing.cluster import Cluster
from moonpool.testing.processes import free_port

MIB = 1024 * 1024
SILENT_MS = 2_000


@contextlib.contextmanager
def listening(folder: Path, host: str = "127.0.0.1", **settings: object) -> Iterator[Cluster]:
    """The node tells the directory by TCP."""
    told = f"{host}:{free_port()}"
    chosen: dict[str, object] = {
        "node.listen": f"{host}:{free_port()}",
        "node.limits.remote_silent_ms": SILENT_MS,
        "node.directories": told,
        "directory.listen": told,
        **settings,
    }
    with Cluster(folder, settings=chosen) as running:
        yield running


def address_of(cluster: Cluster) -> str:
    return cluster.config.node.listen[0]


def remote_pool(cluster: Cluster, **client: Any) -> Pool:
    """As a client of another host would: no path of this host is used."""
    return cluster.connect(node=address_of(cluster), **client)


def in_time(call: Callable[[], Any]) -> Any:
    """What the call gives; TimeoutError when it does not end within 20 s."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result(timeout=20)


def figures(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = pool.stat()["table"]
    return found


def counters(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = pool.stat()["counters"]
    return found
