"""What an engine's configuration says about its blocks: groups, identity, and why not to share.

Reads vLLM's configuration objects by attribute only, so that it can be tested with plain ones; `moonpool.connectors.
vllm` brings in what has to be imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moonpool.connectors.adapters import AdapterUse
from moonpool.connectors.groups import FULL_ATTENTION, WINDOW, CacheGroup
from moonpool.connectors.request_reasons import MEDIA, PROMPT_EMBEDDINGS
from moonpool.identity.identity import Adapter, Identity, KvGroup, clean_model_config, with_adapter

# By the name of vLLM's spec class, exactly: a subclass may follow another rule.
_RULES = {
    "FullAttentionSpec": FULL_ATTENTION,
    "MLAAttentionSpec": FULL_ATTENTION,
    "SlidingWindowSpec": WINDOW,
    "SlidingWindowMLASpec": WINDOW,
}
# What decides how an adapter's weights are applied. Not all releases have all of them.
_LORA_FIELDS = (
    "lora_dtype",
    "target_modules",
    "fully_sharded_loras",
    "enable_tower_connector_lora",
    "enable_mixed_moe_lora_format",
    "enable_moe_shared_loras",
)
_SAME_ON_EVERY_SHARD = frozenset({"MLAAttentionSpec", "SlidingWindowMLASpec"})


class PlatformFacts(msgspec.Struct, frozen=True):
    """What only an import of the engine can tell."""

    engine_version: str
    attention_backend: str
    instruction_set: str
    hash_seed_fingerprint: str  # of the value that the first block's hash starts from
    weights: str  # content fingerprint


def read_groups(kv_cache_config: Any) -> tuple[CacheGroup, ...]:
    """The cache groups of a vLLM `KVCacheConfig`, in its order."""
    return tuple(_read_group(index, group) for index, group in enumerate(kv_cache_config.kv_cache_groups))


def _read_group(index: int, group: Any) -> CacheGroup:
    specs = list(_layer_specs(group.kv_cache_spec))
    names = {type(spec).__name__ for spec in specs}
    rules = {_RULES.get(name, name) for name in names}
    windows = {getattr(spec, "sliding_window", None) for spec in specs} if rules == {WINDOW} else {0}
    kind = rules.pop() if len(rules) == 1 and len(windows) == 1 else "mixed: " + ", ".join(sorted(names))
    if getattr(group, "host_resident", False) or not getattr(group, "enable_kv_transfer", True):
        kind = "not_transferable"
    if any(getattr(spec, "bounded_replay", False) for spec in specs):
        kind = "bounded_replay"
    return CacheGroup(
        kv_group=index,
        kind=kind,
        block_size=int(group.kv_cache_spec.block_size),
        layer_names=tuple(group.layer_names),
        window_token_count=int(windows.pop() or 0) if kind == WINDOW else 0,
        layer_block_bytes=int(group.kv_cache_spec.page_size_bytes),
        content_bytes=_content_bytes(group),
        same_on_every_shard=names <= _SAME_ON_EVERY_SHARD,
    )


def _content_bytes(group: Any) -> int:
    """Bytes that the layers' tensors must cover together for one block; 0 where vLLM does not say."""
    inner = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    specs = list(inner.values()) if isinstance(inner, Mapping) else [group.kv_cache_spec] * len(group.layer_names)
    sizes = [getattr(spec, "unpadded_page_size_bytes", None) for spec in specs]
    return 0 if None in sizes else sum(int(size) for size in sizes if size is not None)


def _layer_specs(spec: Any) -> Iterable[Any]:
    """The specs of a group's layers: one for all, or one a layer."""
    inner = getattr(spec, "kv_cache_specs", None)
    return inner.values() if isinstance(inner, Mapping) else (spec,)


def engine_label(vllm_config: Any, configured: str) -> str:
    """What the engine is called: as configured, with its rank where several run side by side, else vLLM's own id."""
    parallel = vllm_config.parallel_config
    name = configured or str(vllm_config.kv_transfer_config.engine_id)
    side_by_side = int(getattr(parallel, "data_parallel_size", 1)) > 1
    return f"{name}-{parallel.data_parallel_rank}" if side_by_side and configured else name


def shard_count(vllm_config: Any, kv_cache_config: Any) -> int:
    """Workers with different bytes of one block."""
    parallel = vllm_config.parallel_config
    per_stage = max(1, int(parallel.tensor_parallel_size) // replica_count(kv_cache_config))
    return per_stage * int(parallel.pipeline_parallel_size)


def replica_count(kv_cache_config: Any) -> int:
    """Workers with the same bytes of a block."""
    return max(1, int(getattr(kv_cache_config, "kv_tp_replicas", 1) or 1))


def find_engine_obstacle(vllm_config: Any) -> str:
    """Why nothing of this engine can be shared; empty when it can."""
    parallel = vllm_config.parallel_config
    contexts = int(getattr(parallel, "decode_context_parallel_size", 1)) * int(
        getattr(parallel, "prefill_context_parallel_size", 1)
    )
    if contexts > 1:
        return "context parallelism splits blocks over ranks, which is not stored yet"
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is not None and getattr(speculative, "method", "") not in ("ngram", "ngram_gpu", "suffix"):
        method = getattr(speculative, "method", "a draft model")
        return f"speculative decoding by {method!r} adds layers, which are not stored yet"
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        return "calculate_kv_scales takes the scales from this engine's first batch, so its blocks fit no other engine"
    if getattr(vllm_config.load_config, "load_format", "") == "dummy":
        return "dummy weights are not shared"
    return ""


def find_load_obstacle(vllm_config: Any) -> str:
    """Why this engine is offered no hits, though it may save."""
    transfer = vllm_config.kv_transfer_config
    if transfer.kv_load_failure_policy != "recompute":
        return (
            f"kv_load_failure_policy is {transfer.kv_load_failure_policy!r}: a lost block would fail the request; "
            "set it to 'recompute' in --kv-transfer-config (moonpool vllm-args prints it)"
        )
    if not transfer.is_kv_consumer:
        return f"kv_role is {transfer.kv_role!r}: set it to 'kv_both' to load"
    return ""


def find_save_obstacle(vllm_config: Any) -> str:
    """Why this engine saves nothing, though it may load."""
    transfer = vllm_config.kv_transfer_config
    return "" if transfer.is_kv_producer else f"kv_role is {transfer.kv_role!r}: set it to 'kv_both' to save"


def find_warnings(vllm_config: Any) -> list[str]:
    """What works and had better be changed."""
    algorithm = str(vllm_config.cache_config.prefix_caching_hash_algo)
    if algorithm == "sha256_cbor":
        return []
    return [f"prefix caching hashes by {algorithm}: set --prefix-caching-hash-algo sha256_cbor, which needs no pickle"]


def find_request_obstacle(request: Any, *, share_media: bool) -> str:
    """Why this request shares nothing, its adapter aside; empty when it does."""
    if getattr(request, "prompt_embeds", None) is not None and not share_media:
        return PROMPT_EMBEDDINGS
    if getattr(request, "mm_features", None) and not share_media:
        return MEDIA
    return ""


def adapter_use(request: Any) -> AdapterUse | None:
    """The LoRA adapter of a request, if it has one."""
    adapter = getattr(request, "lora_request", None)
    if adapter is None:
        return None
    return AdapterUse(
        name=str(adapter.lora_name),
        path=str(adapter.lora_path),
        number=int(adapter.lora_int_id),
        variant="3d" if getattr(adapter, "is_3d_lora_weight", False) else "",
        in_place=bool(getattr(adapter, "load_inplace", False)),
    )


def with_lora(identity: Identity, adapter: Adapter, vllm_config: Any) -> Identity:
    """The identity of requests with this adapter: what it contains, and how this engine applies adapters."""
    lora = getattr(vllm_config, "lora_config", None)
    applied = {
        name: _text(getattr(lora, name)) for name in _LORA_FIELDS if getattr(lora, name, None) not in (None, False)
    }
    overrides = {**(identity.config_overrides or {}), "lora": applied}
    return msgspec.structs.replace(with_adapter(identity, adapter), config_overrides=overrides)


def _text(value: Any) -> str:
    return json.dumps(sorted(value)) if isinstance(value, list) else str(value).removeprefix("torch.")


def build_identity(vllm_config: Any, groups: Sequence[CacheGroup], *, layout: str, facts: PlatformFacts) -> Identity:
    """All that the bytes of this engine's blocks depend on besides their tokens. Raises IdentityError."""
    model, cache, parallel = vllm_config.model_config, vllm_config.cache_config, vllm_config.parallel_config
    compute_dtype = str(model.dtype).removeprefix("torch.")
    kv_dtype = compute_dtype if cache.cache_dtype == "auto" else str(cache.cache_dtype)
    alone = all(group.same_on_every_shard for group in groups)
    return Identity(
        engine=f"vllm {facts.engine_version}",
        architecture=str(model.architecture),
        weights=facts.weights,
        weight_version="",
        adapter=None,
        compute_dtype=compute_dtype,
        kv_dtype=kv_dtype,
        kv_scales="none" if kv_dtype == compute_dtype else "of the weights",
        quantization=str(model.quantization or "none"),
        attention_backend=facts.attention_backend,
        instruction_set=facts.instruction_set,
        layout=layout,
        block_size_tokens=groups[0].block_size,
        blocks_per_object=1,
        layer_count=sum(len(group.layer_names) for group in groups),
        kv_head_count=int(model.get_total_num_kv_heads()),
        head_size=int(model.get_head_size()),
        kv_groups=tuple(_identity_group(group) for group in groups),
        model_config=clean_model_config(_as_mapping(model.hf_config)),
        config_overrides=_overrides(model.hf_overrides),
        speculative={},
        tensor_parallel_size=1 if alone else int(parallel.tensor_parallel_size),
        pipeline_parallel_size=int(parallel.pipeline_parallel_size),
        context_parallel_size=1,
        salt="",
        hash_algorithm=str(cache.prefix_caching_hash_algo),
        hash_seed=facts.hash_seed_fingerprint,
    )


def _identity_group(group: CacheGroup) -> KvGroup:
    return KvGroup(
        kind=group.kind,
        layers=group.layer_names,
        block_size_tokens=group.block_size,
        block_bytes=max(1, group.layer_block_bytes),
        window_tokens=group.window_token_count,
    )


def _as_mapping(hf_config: Any) -> dict[str, Any]:
    if isinstance(hf_config, Mapping):
        return dict(hf_config)
    return dict(json.loads(hf_config.to_json_string(use_diff=False)))


def _overrides(overrides: Any) -> dict[str, Any]:
    if not overrides:
        return {}
    if isinstance(overrides, Mapping):
        return dict(json.loads(json.dumps(overrides, default=str)))
    return {"callable": f"{getattr(overrides, '__module__', '')}.{getattr(overrides, '__qualname__', repr(overrides))}"}


class RequestFacts:
    """A vLLM request as the scheduler's side reads it: a view, always of now."""

    __slots__ = ("source",)

    def __init__(self, source: Any) -> None:
        self.source = source

    @property
    def request_id(self) -> str:
        """VLLM's internal id: the caller's with a random end."""
        return str(self.source.request_id)

    @property
    def block_hashes(self) -> Sequence[bytes]:
        """Hashes of the blocks that are full, from the start on."""
        hashes: Sequence[bytes] = self.source.block_hashes
        return hashes

    @property
    def token_count(self) -> int:
        """Tokens that are known: the prompt and what was generated."""
        return int(self.source.num_tokens)

    @property
    def prompt_token_count(self) -> int:
        """Tokens of the prompt."""
        return int(self.source.num_prompt_tokens)

    @property
    def attempt(self) -> int:
        """How often it was preempted."""
        return int(self.source.num_preemptions)
