"""Gathers what the doctor looks at: status documents, secret, limits, processes. Changes nothing."""

from __future__ import annotations

import http.client
import json
import os
import resource
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from moonpool import config
from moonpool.config import Config
from moonpool.errors import ConfigError
from moonpool.identity import EngineDescription, decode_description
from moonpool.pool.diagnosis import Evidence, Peer, Process
from moonpool.pool.diagnosis_host import Limits
from moonpool.telemetry.process import read_announcement
from moonpool.types import Reason

_ENGINE_COMMANDS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
_NO_SECRET = bytes(16)


class _Client(Protocol):
    """What NodeClient and DirectoryClient have in common."""

    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def stat(self, *, timeout_ms: int = ...) -> str | None: ...
    def close(self) -> None: ...


def gather(settings: Config, *, timeout_ms: int) -> Evidence:
    """Everything that can be seen from here; each peer is given `timeout_ms`."""
    from moonpool import _native

    secret, secret_failure = _secret(settings)
    name, tenant = "doctor", settings.client.tenant
    node_path = settings.client.node or settings.node.socket_path
    directory_path = directory_address(settings)
    if secret_failure:
        found = (Peer(socket_path=node_path), Peer(socket_path=directory_path))
    else:
        # No mapping of the segment: the doctor must not need the memory that it looks for.
        node = _native.NodeClient(node_path, secret=secret, tenant=tenant, name=name, shared_memory=False)
        directory = _native.DirectoryClient(directory_path, secret=secret, tenant=tenant, name=name)
        found = (_look(node, node_path, timeout_ms), _look(directory, directory_path, timeout_ms))
    return Evidence(
        node=found[0],
        directory=found[1],
        version=metadata.version("moonpool") if _installed() else _native.__version__,
        memory=config.read_machine_memory(),
        limits=read_limits(),
        segment_bytes=settings.node.segment_bytes,
        connection_count=settings.node.limits.connection_count,
        secret_failure=secret_failure,
        engines=described_engines(peer.status for peer in found),
        engine_processes=engine_processes(),
        conductor=None if secret_failure else conductor_status(settings, timeout_ms=timeout_ms),
        now=time.time(),
    )


def directory_address(settings: Config) -> str:
    """The directory of this host where one was started, else the first that the node is to tell."""
    own = settings.directory.socket_path
    return own if Path(own).exists() else next(iter(settings.node.directories), own)


def _look(client: _Client, socket_path: str, timeout_ms: int) -> Peer:
    # By TCP nobody can see beforehand whether somebody listens.
    exists = Path(socket_path).exists() or config.split_host_port(socket_path) is not None
    try:
        reason, message = client.connect(timeout_ms)
        text = None if reason else client.stat(timeout_ms=timeout_ms)
    finally:
        client.close()
    if text is not None:
        return Peer(socket_path=socket_path, socket_exists=True, status=json.loads(text))
    why = Reason(reason or Reason.TIMED_OUT)
    return Peer(socket_path=socket_path, socket_exists=exists, reason=why, failure=message or why.meaning)


def conductor_status(settings: Config, *, timeout_ms: int) -> Mapping[str, Any] | None:
    """The /status of the conductor that runs in this runtime folder; None when there is none, or it does not answer."""
    found = read_announcement(settings.runtime_folder, "conductor")
    if found is None:
        return None
    place = urllib.parse.urlsplit(found.http)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout_ms / 1000)
    token = config.http_token(config.load_secret(settings.runtime_folder, settings.secret_file))
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return dict(json.loads(answer.read())) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def described_engines(statuses: Iterable[Mapping[str, Any] | None]) -> tuple[EngineDescription, ...]:
    """What the processes of engines said of themselves, the newest word of each, by engine, role and rank."""
    newest: dict[tuple[str, str, int], EngineDescription] = {}
    for status in statuses:
        for connection in (status or {}).get("connections") or ():
            said = decode_description(connection.get("description"))
            if said is None:
                continue
            key = (said.engine_id, said.role, said.rank)
            if key not in newest or said.described_at >= newest[key].described_at:
                newest[key] = said
    return tuple(newest[key] for key in sorted(newest))


def read_limits(shared_memory: Path = Path("/dev/shm")) -> Limits:
    """Limits of this process, which those that it would start inherit. Of open files the hard one: a server raises its
    soft limit to that.
    """

    def limit_of(which: int, *, hard: bool) -> int | None:
        limit = resource.getrlimit(which)[hard]
        return None if limit == resource.RLIM_INFINITY else limit

    try:
        found = os.statvfs(shared_memory)
        shared_memory_bytes = found.f_frsize * found.f_blocks
    except OSError:  # there is none in this sandbox: nothing to say about it
        shared_memory_bytes = None
    return Limits(
        address_space_bytes=limit_of(resource.RLIMIT_AS, hard=False),
        open_file_count=limit_of(resource.RLIMIT_NOFILE, hard=True),
        shared_memory_bytes=shared_memory_bytes,
    )


def engine_processes(process_folder: Path = Path("/proc")) -> tuple[Process, ...]:
    """API servers of vLLM of this user, by their command lines."""
    found = []
    for folder in process_folder.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
            command = tuple((folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
        except OSError:  # it ended while we looked, or is not ours to see
            continue
        if _is_engine(command):
            found.append(Process(int(folder.name), command))
    return tuple(sorted(found, key=lambda process: process.process_id))


def _is_engine(command: tuple[str, ...]) -> bool:
    if any(part in _ENGINE_COMMANDS for part in command):
        return True
    names = [Path(part).name for part in command[:3]]
    return any(pair == ("vllm", "serve") for pair in zip(names, command[1:3], strict=False))


def _secret(settings: Config) -> tuple[bytes, str]:
    """The key for handshakes, or one that nobody accepts and why."""
    try:
        return config.secret_key(config.load_secret(settings.runtime_folder, settings.secret_file)), ""
    except ConfigError as error:
        # Without any process there is no secret yet: that there is no node is the finding, not this.
        absent = error.kind == "secret_missing" and not settings.secret_file
        return _NO_SECRET, "" if absent else str(error)


def _installed() -> bool:
    try:
        metadata.version("moonpool")
    except metadata.PackageNotFoundError:  # run from a source tree
        return False
    return True
