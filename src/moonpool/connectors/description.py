"""Who this engine is, as `describe` tells it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec

from moonpool.connectors.event_facts import EventFacts, HashFacts
from moonpool.connectors.groups import CacheGroup, find_obstacle
from moonpool.connectors.health import Health
from moonpool.connectors.outcomes import Ledger
from moonpool.connectors.scheduler import Scope
from moonpool.identity import EngineDescription, GroupDescription


class EngineSelf(msgspec.Struct, kw_only=True):
    """What is known of the engine besides its counters; grows while it starts."""

    engine_id: str
    kind_version: str
    model: str
    process_id: int
    tenant: str
    groups: Sequence[CacheGroup]
    hash_block_size: int
    shard_count: int
    hash_algorithm: str
    load_failure_policy: str
    prefix_caching: bool
    started_at: float
    hash_seed: str = ""
    hashing: HashFacts = HashFacts()
    events: EventFacts = EventFacts()
    identity: dict[str, str] = msgspec.field(default_factory=dict)
    identity_error: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


def describe_engine(
    engine: EngineSelf, *, scope: Scope, ledger: Ledger, health: Health, node_incarnation: int = 0
) -> EngineDescription:
    """The document of now, without its time."""
    counters = ledger.counters()
    counters = msgspec.structs.replace(counters, breaker_openings=health.away_count)
    obstacle = find_obstacle(engine.groups, hash_block_size=engine.hash_block_size)
    return EngineDescription(
        engine_id=engine.engine_id,
        kind="vllm",
        kind_version=engine.kind_version,
        model=engine.model,
        moonpool_version=metadata_version(),
        role="scheduler",
        process_id=engine.process_id,
        tenant=engine.tenant,
        namespace_id=f"{scope.namespace_id:016x}" if scope.namespace_id else "",
        identity=engine.identity,
        identity_error=engine.identity_error,
        hash_algorithm=engine.hash_algorithm,
        hash_seed=engine.hash_seed,
        hash_root=engine.hashing.root,
        hash_extra_keys=engine.hashing.extra_keys,
        hash_sample=engine.hashing.sample,
        data_rank=engine.events.data_rank,
        event_endpoint=engine.events.endpoint,
        event_replay_endpoint=engine.events.replay_endpoint,
        event_topic=engine.events.topic,
        node_incarnation=node_incarnation,
        block_size_tokens=engine.groups[0].block_size if engine.groups else 0,
        kv_groups=[_describe_group(group, engine.shard_count, obstacle) for group in engine.groups],
        load_failure_policy=engine.load_failure_policy,
        prefix_caching=engine.prefix_caching,
        loads=not scope.load_obstacle,
        saves=not scope.save_obstacle,
        reasons=_reasons(engine, scope),
        started_at=engine.started_at,
        counters=counters,
        outcomes=ledger.outcomes(),
    )


def _reasons(engine: EngineSelf, scope: Scope) -> list[str]:
    found = [scope.load_obstacle, scope.save_obstacle, *engine.warnings]
    return list(dict.fromkeys(reason for reason in found if reason))


def metadata_version() -> str:
    """The release of Moonpool, as installed; empty when run from a source tree."""
    try:
        return version("moonpool")
    except PackageNotFoundError:
        return ""


def _describe_group(group: CacheGroup, shard_count: int, obstacle: str) -> GroupDescription:
    return GroupDescription(
        kv_group=group.kv_group,
        kind=group.kind,
        window_block_count=group.window_block_count,
        layer_count=len(group.layer_names),
        shard_count=1 if group.same_on_every_shard else shard_count,
        block_bytes=group.layer_block_bytes * len(group.layer_names),
        stored=not obstacle,
        reason=obstacle,
    )
