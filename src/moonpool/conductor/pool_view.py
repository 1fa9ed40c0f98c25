"""What the pool holds, asked of the directory at each question; and the engines that announced themselves there.

The directory's index is right by itself: owners tell it anew after every break. A second copy here would have to be
kept so too, and would cost memory twice. Asking costs one round trip on the same host.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import msgspec

from moonpool.conductor.hashes import ALGORITHMS, ExtraKeys, HashRules
from moonpool.conductor.registration import PoolFacts, Registration
from moonpool.errors import UsageError
from moonpool.identity import EngineDescription, decode_description
from moonpool.types import GroupRule, Tier

MATCHED_KINDS = frozenset({"full_attention", "window"})  # as connectors name them


class DirectoryFace(Protocol):
    """The part of `DirectoryClient` that is needed."""

    @property
    def connected(self) -> bool: ...
    def connect(self, timeout_ms: int) -> tuple[int, str]: ...
    def match(self, namespace_id: int, block_hashes: Any, groups: Any, *, timeout_ms: int = 2) -> Any: ...
    def stat(self, *, timeout_ms: int = 2000) -> str | None: ...
    def close(self) -> None: ...


class NodeReach(NamedTuple):
    """Blocks of a prompt's beginning that one node holds."""

    name: str
    incarnation: int
    block_count: int
    tier: Tier  # the farthest of them: all are counted as lying there


class PoolView:
    """One directory. A directory that does not answer in time is a miss."""

    def __init__(self, directory: DirectoryFace, *, budget_ms: int) -> None:
        self._directory = directory
        self._budget_ms = budget_ms
        self.questions = 0
        self.unanswered = 0

    def holders(self, facts: PoolFacts, hashes: array[int]) -> list[NodeReach]:
        """Longest first."""
        self.questions += 1
        answer = self._directory.match(facts.namespace_id, hashes, facts.groups, timeout_ms=self._budget_ms)
        if not answer.reachable:
            self.unanswered += 1
            return []
        return [
            NodeReach(name, incarnation, count, _farthest(tier_mask))
            for name, incarnation, count, tier_mask in answer.holders
        ]

    def descriptions(self, *, timeout_ms: int) -> list[EngineDescription] | None:
        """Of all engines that the directory hears; None when it could not be asked."""
        if not self._directory.connected and self._directory.connect(timeout_ms)[0] != 0:
            return None
        text = self._directory.stat(timeout_ms=timeout_ms)
        if text is None:
            return None
        found = (
            decode_description(each.get("description")) for each in msgspec.json.decode(text).get("connections", ())
        )
        return [each for each in found if each is not None]

    def close(self) -> None:
        """Ask no more."""
        self._directory.close()


def _farthest(tier_mask: int) -> Tier:
    return max((tier for tier in Tier if tier_mask & tier), default=Tier.DRAM)


def announced(descriptions: Iterable[EngineDescription]) -> tuple[list[Registration], dict[str, str]]:
    """Registrations of engines that publish events, and of the others by name why not."""
    found: dict[str, Registration] = {}
    refused: dict[str, str] = {}
    for said in descriptions:
        if said.role != "scheduler":
            continue
        name = said.engine_id
        if not said.event_endpoint:
            refused[name] = "it publishes no KV events: start it with what `moonpool vllm-args --events` prints"
            continue
        try:
            found[name] = registration_of(said)
        except UsageError as error:
            refused[name] = str(error)
    return list(found.values()), refused


def registration_of(said: EngineDescription) -> Registration:
    """From what an engine said of itself. UsageError when that is not enough."""
    if said.kind == "vllm" and said.hash_algorithm not in ALGORITHMS:
        raise UsageError(f"it hashes blocks by {said.hash_algorithm or 'nothing that it names'}")
    if said.kind == "vllm" and not said.hash_root:
        raise UsageError("it has not drawn the seed of its block hashes yet")
    rules = HashRules(
        strategy="sglang" if said.kind == "sglang" else "vllm",
        algorithm=said.hash_algorithm,
        seed=None,
        root=said.hash_root,
        block_size_tokens=said.block_size_tokens,
        extra_keys=_extra_keys(said.hash_extra_keys),
    )
    matched = [each for each in said.kv_groups if each.kind in MATCHED_KINDS]
    groups = tuple(GroupRule(each.kv_group, each.shard_count, each.window_block_count) for each in matched)
    pool = None
    if said.namespace_id:
        pool = PoolFacts(namespace_id=int(said.namespace_id, 16), groups=groups, node_incarnation=said.node_incarnation)
    return Registration(
        instance_id=said.engine_id,
        tenant=said.tenant,
        data_rank=said.data_rank,
        model=said.model,
        kind={"sglang": "SGLang"}.get(said.kind, "vLLM"),
        endpoint=said.event_endpoint,
        replay_endpoint=said.event_replay_endpoint,
        topic=said.event_topic,
        rules=rules,
        groups=tuple(group._replace(shard_count=1) for group in groups),
        unmatched_groups=tuple(each.kv_group for each in said.kv_groups if each not in matched),
        sample_hash=said.hash_sample,
        pool=pool,
        origin="announced",
    )


def _extra_keys(said: str) -> ExtraKeys:
    if said == "tagged_names":
        return "tagged_names"
    return "untagged" if said == "untagged" else "tagged"
