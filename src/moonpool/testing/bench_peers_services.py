"""Mooncake's store and LMCache's server, installed beside ours and started for a comparison.

Each peer gets a virtual environment below `.cache/peers`. A path file in it makes this environment's packages (torch,
vLLM) visible too, so that nothing large is installed twice and nothing of ours is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from moonpool.errors import MoonpoolError
from moonpool.testing.processes import Child, Progress, free_port

PEERS_FOLDER = Path(".cache/peers")
INSTALL_SECONDS_MAX = 600
READY_SECONDS_MAX = 90

Tied = tuple[str, tuple[str, ...], dict[str, str]]  # python, engine flags, environment


class Peer(msgspec.Struct, frozen=True):
    """What to install. `alone`: without its dependencies, which would bring CUDA or replace ours."""

    name: str
    alone: tuple[str, ...]
    others: tuple[str, ...] = ()
    libraries: tuple[tuple[str, str], ...] = ()  # library and the Debian package that has it


MOONCAKE = Peer(
    "mooncake",
    ("mooncake-transfer-engine-non-cuda==0.3.13.post1",),
    (),
    (("ibverbs", "libibverbs1"), ("rdmacm", "librdmacm1"), ("numa", "libnuma1"), ("curl", "libcurl4"),
     ("uring", "liburing2")),
)  # fmt: skip
LMCACHE = Peer(
    "lmcache",
    ("lmcache==0.5.6",),
    ("awscrt", "nvtx", "sortedcontainers", "redis", "aiofile", "aiofiles", "httptools",
     "opentelemetry-exporter-prometheus", "grpcio"),
)  # fmt: skip


def install(peer: Peer, progress: Progress) -> Path:
    """The peer's environment, made once. MoonpoolError says what is missing."""
    missing = [package for library, package in peer.libraries if ctypes.util.find_library(library) is None]
    if missing:
        raise MoonpoolError(f"{peer.name} needs: apt-get install -y {' '.join(missing)}", kind="start_failed")
    folder = (PEERS_FOLDER / peer.name).absolute()
    done = folder / "installed.json"
    wanted = json.dumps([*peer.alone, *peer.others])
    if done.is_file() and done.read_text() == wanted:
        return folder
    progress(f"installing {peer.name} into {folder}")
    venv.create(folder, with_pip=True, clear=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "engine.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _pip(folder, ["--no-deps", *peer.alone])
    if peer.others:
        _pip(folder, list(peer.others))
    done.write_text(wanted)
    return folder


def _pip(folder: Path, arguments: Sequence[str]) -> None:
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *arguments]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise MoonpoolError(f"`{' '.join(command)}` took too long", kind="start_failed") from error
    if found.returncode != 0:
        raise MoonpoolError(f"`pip install {' '.join(arguments)}` failed:\n{found.stderr[-1500:]}", kind="start_failed")


def transfer_flags(connector: str, extra: dict[str, object] | None = None) -> tuple[str, ...]:
    """VLLM's flags for one of its own connectors; a failed load is computed again, as with ours."""
    config = {"kv_connector": connector, "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}
    return ("--kv-transfer-config", json.dumps({**config, "kv_connector_extra_config": extra or {}}))


@contextlib.asynccontextmanager
async def mooncake_service(folder: Path, progress: Progress) -> AsyncIterator[Tied]:
    """Mooncake's master, and a configuration for engines that lend it half a gibibyte each."""
    home = await asyncio.to_thread(install, MOONCAKE, progress)
    rpc, metadata, metrics = free_port(), free_port(), free_port()
    command = [
        str(home / "bin" / "mooncake_master"), "--rpc_port", str(rpc), "--enable_http_metadata_server=true",
        "--http_metadata_server_host=127.0.0.1", f"--http_metadata_server_port={metadata}",
        "--metrics_port", str(metrics),
    ]  # fmt: skip
    settings = {
        "local_hostname": "127.0.0.1",
        "metadata_server": f"http://127.0.0.1:{metadata}/metadata",
        "global_segment_size": 512 * 2**20,
        "local_buffer_size": 256 * 2**20,
        "protocol": "tcp",
        "device_name": "",
        "master_server_address": f"127.0.0.1:{rpc}",
    }
    path = folder / "mooncake.json"
    path.write_text(json.dumps(settings))
    async with _running("mooncake_master", command, folder, port=metadata, progress=progress):
        environment = {"MOONCAKE_CONFIG_PATH": str(path)}
        yield str(home / "bin" / "python"), transfer_flags("MooncakeStoreConnector"), environment


@contextlib.asynccontextmanager
async def lmcache_service(folder: Path, progress: Progress) -> AsyncIterator[Tied]:
    """LMCache's server with shared memory, 1 GB."""
    home = await asyncio.to_thread(install, LMCACHE, progress)
    port = free_port()
    command = [
        str(home / "bin" / "lmcache"), "server", "--host", "127.0.0.1", "--port", str(port), "--l1-size-gb", "1",
        "--chunk-size", "64", "--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
        "--shm-name", f"moonpool-bench-{port}",
    ]  # fmt: skip
    extra: dict[str, object] = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port}
    async with _running("lmcache server", command, folder, port=port, progress=progress):
        yield str(home / "bin" / "python"), transfer_flags("LMCacheMPConnector", extra), {}


@contextlib.asynccontextmanager
async def _running(
    name: str, command: Sequence[str], folder: Path, *, port: int, progress: Progress
) -> AsyncIterator[None]:
    if not Path(command[0]).is_file():
        raise MoonpoolError(f"{name}: {command[0]} is not there", kind="start_failed")
    child = Child(name, command, log_path=folder / f"{name.replace(' ', '-')}.log", environment={})
    child.start()
    try:
        await child.wait_until(
            lambda: _listens(port), what="listening", seconds_max=READY_SECONDS_MAX, progress=progress
        )
        yield
    finally:
        await child.stop(grace_s=5)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 1)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
