"""What a connector tells the node about its engine: the JSON of `describe`, shown in /status.

Written by connectors, read by `doctor`, `top`, `why` and the demo. Fields are only ever added.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

DESCRIPTION_VERSION = 1
DESCRIPTION_BYTES_MAX = 64 * 1024


class GroupDescription(Struct, frozen=True, kw_only=True):
    """One kv_group as the connector treats it."""

    kv_group: int
    kind: str  # "full", "window", …
    window_block_count: int = 0
    shard_count: int = 1
    layer_count: int = 0
    block_bytes: int = 0
    stored: bool = True
    reason: str = ""  # why it is not stored


class RequestOutcome(Struct, frozen=True, kw_only=True):
    """What became of one request. Token counts are of the prompt; block counts are of engine blocks."""

    request_id: str
    prompt_tokens: int = 0
    local_tokens: int = 0  # the engine's own prefix cache had them
    promised_tokens: int = 0  # offered to the engine at admission
    applied_tokens: int = 0  # of blocks that were verified and applied: our own count
    byte_count: int = 0
    lookup_ms: float = 0.0
    load_ms: float = 0.0  # from the start of the load until applied
    saved_blocks: int = 0
    reason: str = ""  # label of a Reason, or a short word of the connector; "" when nothing was missed
    detail: str = ""  # one line for people
    finished_at: float = 0.0  # wall clock, seconds


class EngineCounters(Struct, frozen=True, kw_only=True):
    """Since the engine's start. Names end in what is counted."""

    lookups: int = 0
    lookup_hits: int = 0
    lookup_timeouts: int = 0
    breaker_openings: int = 0
    promised_tokens: int = 0
    applied_tokens: int = 0
    blocks_loaded: int = 0
    blocks_failed: int = 0
    blocks_saved: int = 0
    blocks_present: int = 0
    blocks_refused: int = 0
    bytes_loaded: int = 0
    bytes_saved: int = 0
    requests_seen: int = 0
    requests_finished: int = 0
    load_failures: int = 0
    load_ms_total: float = 0.0
    save_ms_total: float = 0.0
    schedule_ms_total: float = 0.0
    misses_by_reason: dict[str, int] = field(default_factory=dict)


class EngineDescription(Struct, frozen=True, kw_only=True):
    """One process of an engine (its scheduler, or one worker)."""

    engine_id: str  # the same in all processes of one engine
    kind: str = "vllm"  # "vllm", "sglang", …
    kind_version: str = ""  # of the engine
    model: str = ""  # as its users call it
    moonpool_version: str = ""
    role: str = "scheduler"  # or "worker"
    rank: int = 0
    process_id: int = 0
    tenant: str = "default"
    namespace_id: str = ""  # 16 hex digits; "" when it shares nothing
    identity: dict[str, str] = field(default_factory=dict)  # Identity.fields()
    identity_error: str = ""  # why there is none
    hash_algorithm: str = ""
    hash_seed: str = ""
    hash_root: str = ""  # hex of what the first block's hash starts from
    hash_extra_keys: str = ""  # how adapters and salts are hashed: "tagged", "tagged_names" or "untagged"
    hash_sample: str = ""  # hex of the hash of the tokens 1, 2, … block_size_tokens, by the engine's own function
    data_rank: int = 0  # of data parallelism
    event_endpoint: str = ""  # where others connect for its KV events; "" when it publishes none
    event_replay_endpoint: str = ""
    event_topic: str = ""
    node_incarnation: int = 0  # of the node that it is connected to
    block_size_tokens: int = 0
    blocks_per_object: int = 1
    kv_groups: list[GroupDescription] = field(default_factory=list)
    load_failure_policy: str = ""  # must be "recompute"
    prefix_caching: bool = True
    loads: bool = True  # offers hits
    saves: bool = True
    reasons: list[str] = field(default_factory=list)  # why it offers no hits or fewer, a line each
    adapters: dict[str, str] = field(default_factory=dict)  # LoRA: name → fingerprint, or why it is not shared
    started_at: float = 0.0  # wall clock, seconds
    described_at: float = 0.0
    counters: EngineCounters = field(default_factory=EngineCounters)
    outcomes: list[RequestOutcome] = field(default_factory=list)  # newest last
    version: int = DESCRIPTION_VERSION


def encode_description(description: EngineDescription) -> str:
    """JSON of at most DESCRIPTION_BYTES_MAX: the oldest outcomes go first when there is no room for all."""
    text = msgspec.json.encode(description)
    while len(text) > DESCRIPTION_BYTES_MAX and description.outcomes:
        kept = description.outcomes[(len(description.outcomes) + 1) // 2 :]
        description = msgspec.structs.replace(description, outcomes=kept)
        text = msgspec.json.encode(description)
    if len(text) > DESCRIPTION_BYTES_MAX:
        description = msgspec.structs.replace(
            description, identity={}, identity_error="identity too large to describe (over 64 KiB)"
        )
        text = msgspec.json.encode(description)
    return text.decode()


def decode_description(document: object) -> EngineDescription | None:
    """From a /status document's `description` (JSON text, or parsed already); None if it describes no engine."""
    try:
        if isinstance(document, str | bytes):
            return msgspec.json.decode(document, type=EngineDescription)
        return msgspec.convert(document, EngineDescription)
    except (msgspec.DecodeError, msgspec.ValidationError):  # another client's words: not an engine
        return None
