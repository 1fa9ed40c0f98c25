"""The conductor process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moonpool import _native, config
from moonpool.conductor.pool_view import PoolView
from moonpool.conductor.service import Conductor
from moonpool.conductor.workers_file import read_workers
from moonpool.telemetry.http import HttpFace, Sources
from moonpool.telemetry.process import blocked_signals, serve

if TYPE_CHECKING:
    from moonpool.conductor.registration import Registration
    from moonpool.config import Config

# Between the thread that listens and the one that answers; Python's own 5 ms would be each answer's delay.
SWITCH_S = 0.000_5


def run_conductor(settings: Config, registrations: Sequence[Registration] = ()) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. MoonpoolError(start_failed) when the port is taken."""
    conductor_settings = settings.conductor
    secret = config.load_or_create_secret(settings.runtime_folder, settings.secret_file)
    named = list(registrations)
    if conductor_settings.workers_file:
        named += read_workers(conductor_settings.workers_file)
    sys.setswitchinterval(SWITCH_S)
    with blocked_signals():
        directory = _native.DirectoryClient(
            settings.directory.socket_path,
            secret=config.secret_key(secret),
            tenant=settings.client.tenant,
            name=f"conductor {conductor_settings.name}",
        )
        conductor = Conductor(
            conductor_settings, pool=PoolView(directory, budget_ms=conductor_settings.directory_budget_ms)
        )
        for registration in named:
            conductor.register(registration)
        is_open = conductor_settings.open_on_loopback and config.is_loopback(conductor_settings.http_host)
        face = HttpFace(
            Sources("conductor", conductor.status, conductor.counters, conductor.verbs(needs_token=not is_open)),
            host=conductor_settings.http_host,
            port=conductor_settings.http_port,
            token=config.http_token(secret),
            settings=settings.telemetry,
        )
        serve(conductor, face, kind="conductor", runtime_folder=settings.runtime_folder, socket_path="")
