"""Who a worker is and where it publishes: checked when it is registered. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from moonpool.conductor.hashes import HashRules
from moonpool.errors import UsageError
from moonpool.identity import canonical_digest
from moonpool.types import GroupRule

Origin = Literal["http", "file", "command line", "announced"]
RANK_MAX = 65_535
NAME_CHARACTERS_MAX = 255
_ENDPOINT = re.compile(r"tcp://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})|ipc://[^\0]{1,107}")
_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class WorkerKey(NamedTuple):
    """One rank of data parallelism of one instance."""

    instance_id: str
    tenant: str
    data_rank: int


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine with our connector looks into the pool."""

    namespace_id: int
    groups: tuple[GroupRule, ...]
    node_incarnation: int = 0  # of the node on its host; 0: not known


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. UsageError names what is wrong, and what would be accepted."""

    instance_id: str
    tenant: str = "default"
    data_rank: int = 0
    model: str
    lora_name: str = ""
    kind: str = "vLLM"  # who publishes: vLLM, SGLang or Mooncake
    endpoint: str  # where it publishes KV events
    replay_endpoint: str = ""
    topic: str = ""
    rules: HashRules
    groups: tuple[GroupRule, ...] = ()  # empty: learnt from its events
    unmatched_groups: tuple[int, ...] = ()  # of rules that no look-up knows, such as recurrent state
    url: str = ""  # of its HTTP API, for the probe; empty: its own requests must do
    sample_hash: str = ""  # of the tokens 1, 2, … block_size_tokens, as the engine itself computed it
    pool: PoolFacts | None = None
    origin: Origin = "http"

    def __post_init__(self) -> None:
        for name in ("instance_id", "tenant", "model"):
            value = getattr(self, name)
            if not 0 < len(value) <= NAME_CHARACTERS_MAX:
                raise UsageError(f"{name} has {len(value)} characters: 1 to {NAME_CHARACTERS_MAX}")
        if not 0 <= self.data_rank <= RANK_MAX:
            raise UsageError(f"dp_rank {self.data_rank}: 0 to {RANK_MAX}")
        check_endpoint("endpoint", self.endpoint)
        if self.replay_endpoint:
            check_endpoint("replay_endpoint", self.replay_endpoint)
        if self.url and not _URL.fullmatch(self.url):
            raise UsageError(f"url {self.url!r}: the base of the engine's HTTP API, as http://host:8000")

    @property
    def key(self) -> WorkerKey:
        """What names it."""
        return WorkerKey(self.instance_id, self.tenant, self.data_rank)

    @property
    def name(self) -> str:
        """For people and metrics."""
        return self.instance_id if not self.data_rank else f"{self.instance_id}/{self.data_rank}"

    @property
    def context(self) -> Context:
        """Workers of one context hold blocks that can be compared."""
        return Context(self.model, self.tenant, self.rules)


class Context(msgspec.Struct, frozen=True):
    """What makes blocks comparable: model, tenant and how they are hashed."""

    model: str
    tenant: str
    rules: HashRules

    @property
    def namespace_id(self) -> int:
        """For the index; never 0."""
        digest = canonical_digest({"model": self.model, "tenant": self.tenant, "rules": self.rules})
        return int.from_bytes(digest[:8], "little") or 1


def check_endpoint(name: str, endpoint: str) -> None:
    """UsageError unless one can connect there."""
    if not endpoint:
        raise UsageError(f"no {name}: the address of the engine's KV events, as tcp://host:5557")
    if "*" in endpoint or "//0.0.0.0" in endpoint or "//[::]" in endpoint:
        raise UsageError(
            f"{name} {endpoint!r} is where an engine binds: name its host instead of the wildcard, as tcp://host:5557"
        )
    found = _ENDPOINT.fullmatch(endpoint)
    if found is None or not 0 < int(found.group(2) or 1) <= 65_535:
        raise UsageError(f"{name} {endpoint!r}: tcp://host:port or ipc:///path expected")
