"""Puts the two sides of a connector together from settings. Knows no engine's types."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from moonpool.config import Config, ConnectorSettings, load, load_or_create_secret, secret_key
from moonpool.connectors.groups import CacheGroup, match_rules
from moonpool.connectors.health import Health
from moonpool.connectors.link import NodeLink
from moonpool.connectors.loading import LoadLimits
from moonpool.connectors.lookup import LookupDesk, LookupLimits, MatchAnswer, Matcher
from moonpool.connectors.outcomes import Ledger
from moonpool.connectors.scheduler import SchedulerSide
from moonpool.connectors.worker import Shard, WorkerLimits, WorkerSide
from moonpool.identity import digest_hints

EXTRA_PREFIX = "moonpool."
_TOP_SETTINGS = frozenset({"runtime_folder", "secret_file"})
CONNECT_TIMEOUT_MS = 500


def clock_ms() -> float:
    """Milliseconds of a clock that never goes back."""
    return time.monotonic() * 1000


def connector_config(extra_config: Mapping[str, Any]) -> Config:
    """Settings with ``moonpool.*`` of the engine's connector configuration as flags.

    ``moonpool.engine_id`` is ``connector.engine_id``; ``moonpool.node.socket_path`` and ``moonpool.runtime_folder``
    are themselves. Other keys belong to the engine and are left alone.
    """
    overrides: dict[str, object] = {}
    for name, value in extra_config.items():
        if name.startswith(EXTRA_PREFIX):
            setting = name.removeprefix(EXTRA_PREFIX)
            overrides[setting if "." in setting or setting in _TOP_SETTINGS else f"connector.{setting}"] = value
    return load(overrides=overrides)


class Peers(msgspec.Struct, frozen=True):
    """How this process reaches node and directory."""

    node_path: str
    directory_path: str
    secret: bytes
    tenant: str

    def node_client(self, name: str, *, shared_memory: bool) -> Any:
        """A client of the node, not yet connected."""
        from moonpool._native import NodeClient

        return NodeClient(
            self.node_path,
            secret=self.secret,
            tenant=self.tenant,
            name=name,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            shared_memory=shared_memory,
        )

    def directory_client(self, name: str) -> Any:
        """A client of the directory, not yet connected."""
        from moonpool._native import DirectoryClient

        return DirectoryClient(
            self.directory_path,
            secret=self.secret,
            tenant=self.tenant,
            name=name,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        )


def find_peers(config: Config) -> Peers:
    """Paths and secret from the settings. ConfigError when the secret cannot be had."""
    return Peers(
        node_path=config.node.socket_path,
        directory_path=config.directory.socket_path,
        secret=secret_key(load_or_create_secret(config.runtime_folder, config.secret_file)),
        tenant=config.client.tenant,
    )


def _health(settings: ConnectorSettings, *, failure_count_max: int) -> Health:
    return Health(
        failure_count_max=failure_count_max, probe_ms_min=settings.retry_ms_min, probe_ms_max=settings.retry_ms_max
    )


class SchedulerParts(msgspec.Struct, frozen=True):
    """The scheduler's side and what it is made of."""

    side: SchedulerSide
    link: NodeLink
    health: Health
    ledger: Ledger


def make_scheduler_parts(
    config: Config, groups: Sequence[CacheGroup], *, peers: Peers, name: str, shard_count: int
) -> SchedulerParts:
    """Everything of the scheduler's side. Opens nothing."""
    settings = config.connector
    health = _health(settings, failure_count_max=settings.breaker_failure_count)
    link = NodeLink(
        lambda: [peers.node_client(f"{name} {pace}", shared_memory=False) for pace in ("look-ups", "late look-ups")],
        health=health,
        clock_ms=clock_ms,
    )
    ledger = Ledger(outcome_count=settings.outcome_count)
    rules = match_rules(groups, shard_count=shard_count)
    late = ThreadPoolExecutor(max_workers=1, thread_name_prefix="moonpool-late")

    # On one host the node's own answer is always good, and the node is needed for the load anyway: it is asked
    # first, so that a directory that is behind, stopped or gone costs nothing.
    def match(client_index: int, namespace_id: int, block_hashes: Sequence[bytes], *, timeout_ms: int) -> MatchAnswer:
        if not link.up:
            return MatchAnswer(0, False)
        client = link.client(client_index)
        answer = client.match(namespace_id, digest_hints(block_hashes), rules, timeout_ms=timeout_ms)
        return MatchAnswer(answer.fetchable, answer.reachable, lost=not answer.reachable and not client.connected)

    desk = LookupDesk(
        Matcher(
            now=lambda namespace_id, block_hashes, budget_ms: match(
                0, namespace_id, block_hashes, timeout_ms=budget_ms
            ),
            late=lambda namespace_id, block_hashes, timeout_ms: late.submit(
                match, 1, namespace_id, block_hashes, timeout_ms=timeout_ms
            ),
        ),
        health=health,
        limits=LookupLimits(
            budget_ms=settings.lookup_budget_ms,
            pending_ms_max=settings.pending_ms_max,
            load_block_count_min=settings.load_block_count_min,
            request_count_max=settings.request_count_max,
        ),
        clock_ms=clock_ms,
        count=ledger.count,
    )
    side = SchedulerSide(groups, desk=desk, link=link, ledger=ledger, clock_ms=clock_ms)
    return SchedulerParts(side, link, health, ledger)


def make_worker_side(
    config: Config, groups: Sequence[CacheGroup], *, peers: Peers, name: str, shard: Shard
) -> WorkerSide:
    """A worker's side. Opens nothing before `register`."""
    settings = config.connector
    health = _health(settings, failure_count_max=1)
    link = NodeLink(
        lambda: [
            peers.node_client(f"{name} {verb}", shared_memory=config.client.shared_memory) for verb in ("save", "load")
        ],
        health=health,
        clock_ms=clock_ms,
    )
    limits = WorkerLimits(
        load=LoadLimits(settings.load_deadline_ms, settings.load_call_ms),
        save_ms=settings.save_deadline_ms,
        save_call_ms=settings.save_call_ms,
        call_bytes_max=settings.transfer_bytes_max,
    )
    return WorkerSide(groups, shard=shard, link=link, limits=limits, clock_ms=clock_ms)
