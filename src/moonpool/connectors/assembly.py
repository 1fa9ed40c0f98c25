"""Puts the two sides of a connector together from settings. Knows no engine's types."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from moonpool.config import Config, ConnectorSettings, load, load_or_create_secret, secret_key
from moonpool.connectors.elsewhere import OtherNodes, WiderLookup
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
    """How this process reaches node and directories: addresses as `moonpool.connect` takes them."""

    node_address: str
    directory_addresses: tuple[str, ...]
    secret: bytes
    tenant: str
    rail_count: int = 2

    def node_client(self, name: str, *, shared_memory: bool) -> Any:
        """A client of the node, not yet connected."""
        return self.client_of(self.node_address, name, shared_memory=shared_memory)

    def client_of(self, address: str, name: str, *, shared_memory: bool) -> Any:
        """A client of any node, not yet connected."""
        from moonpool._native import NodeClient

        return NodeClient(
            address,
            secret=self.secret,
            tenant=self.tenant,
            name=name,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            shared_memory=shared_memory,
            rail_count=self.rail_count,
        )

    def directory_clients(self, name: str) -> list[Any]:
        """A client of each directory, not yet connected."""
        from moonpool._native import DirectoryClient

        return [
            DirectoryClient(
                address,
                secret=self.secret,
                tenant=self.tenant,
                name=name,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
            )
            for address in self.directory_addresses
        ]


def find_peers(config: Config) -> Peers:
    """Paths and secret from the settings. ConfigError when the secret cannot be had."""
    return Peers(
        node_address=config.client.node or config.node.socket_path,
        directory_addresses=config.node.directories,
        secret=secret_key(load_or_create_secret(config.runtime_folder, config.secret_file)),
        tenant=config.client.tenant,
        rail_count=config.client.rail_count,
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

    wider = _wider_lookups(peers, name, late) if config.client.remote_reads else ()

    # The node's own answer is always good, and the node is needed for the load anyway: it is asked first, so that a
    # directory that is behind, stopped or gone costs nothing but what it alone knows of.
    def match(client_index: int, namespace_id: int, block_hashes: Sequence[bytes], *, timeout_ms: int) -> MatchAnswer:
        if not link.up:
            return MatchAnswer(0, False)
        due_ms = clock_ms() + timeout_ms
        client, hints = link.client(client_index), digest_hints(block_hashes)
        answer = client.match(namespace_id, hints, rules, timeout_ms=timeout_ms)
        found = MatchAnswer(answer.fetchable, answer.reachable, lost=not answer.reachable and not client.connected)
        left_ms = int(due_ms - clock_ms())
        if not found.reachable or found.block_count >= len(block_hashes) or left_ms < 1 or not wider:
            return found
        known = wider[client_index].match(namespace_id, hints, rules, timeout_ms=left_ms)
        return found._replace(block_count=max(found.block_count, known))

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


def _wider_lookups(peers: Peers, name: str, executor: ThreadPoolExecutor) -> tuple[WiderLookup, ...]:
    """One for look-ups in a step, one for late ones: a late one must not have the connection when a step wants it."""
    paces = ("look-ups", "late look-ups")
    return tuple(
        WiderLookup(partial(peers.directory_clients, f"{name} {pace}"), executor=executor, clock_ms=clock_ms)
        for pace in paces
    )


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
    side = WorkerSide(groups, shard=shard, link=link, limits=limits, clock_ms=clock_ms)
    if config.client.remote_reads:
        side.others = OtherNodes(
            lambda address: peers.client_of(address, f"{name} load", shared_memory=config.client.shared_memory),
            lambda: peers.directory_clients(f"{name} load"),
            clock_ms=clock_ms,
        )
    return side
