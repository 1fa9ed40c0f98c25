"""The node process: owner of this host's bytes, round the native `NodeServer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from moonpool import _native, config
from moonpool.pool.memory import require_memory
from moonpool.telemetry.http import HttpFace, Sources
from moonpool.telemetry.process import blocked_signals, serve

if TYPE_CHECKING:
    from moonpool.config import Config


def run_node(settings: Config) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    ConfigError when the segment does not fit this machine, MoonpoolError(start_failed) when the socket is taken.
    """
    node = settings.node
    require_memory(node.segment_bytes, config.read_machine_memory())
    config.prepare_runtime_folder(Path(settings.runtime_folder))
    secret = config.load_or_create_secret(settings.runtime_folder, settings.secret_file)
    with blocked_signals():
        server = _native.NodeServer(
            path=node.socket_path,
            name=node.name,
            site=node.site,
            secret=config.secret_key(secret),
            segment_bytes=node.segment_bytes,
            arena_bytes=node.arena_bytes,
            tenants=list(node.tenants),
            directories=list(node.directories),
            limits=config.native_limits(node.limits),
            listen=list(node.listen),
            advertise=node.advertise,
        )
        face = HttpFace(
            Sources("node", server.status, server.counters),
            host=node.http_host,
            port=node.http_port,
            token=config.http_token(secret),
            settings=settings.telemetry,
        )
        serve(server, face, kind="node", runtime_folder=settings.runtime_folder, socket_path=node.socket_path)
