"""The directory process: soft state about who holds what, round the native `DirectoryServer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from moonpool import _native, config
from moonpool.telemetry.http import HttpFace, Sources
from moonpool.telemetry.process import blocked_signals, serve

if TYPE_CHECKING:
    from moonpool.config import Config


def run_directory(settings: Config) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. MoonpoolError(start_failed) when the socket is taken."""
    directory = settings.directory
    config.prepare_runtime_folder(Path(settings.runtime_folder))
    secret = config.load_or_create_secret(settings.runtime_folder, settings.secret_file)
    with blocked_signals():
        server = _native.DirectoryServer(
            path=directory.socket_path,
            name=directory.name,
            secret=config.secret_key(secret),
            entry_count_max=directory.entry_count_max,
            limits=config.native_limits(directory.limits),
            listen=list(directory.listen),
        )
        face = HttpFace(
            Sources("directory", server.status, server.counters),
            host=directory.http_host,
            port=directory.http_port,
            token=config.http_token(secret),
            settings=settings.telemetry,
        )
        serve(
            server,
            face,
            kind="directory",
            runtime_folder=settings.runtime_folder,
            socket_path=directory.socket_path,
        )
