"""A node and a directory that serve by TCP on this host, as if each client were elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from moonpool import Pool
from moonpool.testing.cluster import Cluster, wait_until
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


@contextlib.contextmanager
def several(folder: Path, count: int, **settings: object) -> Iterator[list[Cluster]]:
    """So many nodes that tell one directory (the first one's); each as if on a host of its own."""
    with contextlib.ExitStack() as stack:
        (folder / "0").mkdir(mode=0o700)
        first = stack.enter_context(listening(folder / "0", **{"node.name": "node-0", **settings}))
        running = [first]
        for number in range(1, count):
            (folder / str(number)).mkdir(mode=0o700)
            chosen: dict[str, object] = {
                "node.name": f"node-{number}",
                "node.listen": f"127.0.0.1:{free_port()}",
                "node.limits.remote_silent_ms": SILENT_MS,
                "node.directories": first.config.directory.listen[0],
                "secret_file": str(folder / "0" / "secret"),
                **settings,
            }
            running.append(stack.enter_context(Cluster(folder / str(number), directory=False, settings=chosen)))
        yield running


def wait_until_told(pool: Pool, keys: Sequence[str], count: int = 1) -> None:
    """Until the directory knows so many holders of each key."""
    wait_until(lambda: all(len(places) >= count for places in pool.locate(keys)), "the directory to be told")
