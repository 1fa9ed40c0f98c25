"""Everything that the bytes of a KV block depend on besides its tokens, declared in one struct. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from moonpool.errors import IdentityError
from moonpool.identity.canonical import canonical_digest, flatten, is_empty

DUMMY_LOAD_FORMAT = "dummy"

# What a mapping of an engine's configuration may hold that no byte depends on: where the files came from.
VOLATILE_CONFIG_NAMES = frozenset(
    {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "base_model_name_or_path", "use_cache"}
)


class Adapter(Struct, frozen=True):
    """A LoRA adapter by name and content: a request that uses it lives in a namespace of its own."""

    name: str
    fingerprint: str


class KvGroup(Struct, frozen=True, kw_only=True):
    """One of the engine's cache groups."""

    kind: str  # "full", "window", "mla", "recurrent", …: what the engine calls it
    layers: tuple[str, ...]  # names, in the canonical order of the pieces of a value
    block_size_tokens: int
    block_bytes: int  # of one shard's block, all layers together
    window_tokens: int = 0  # 0: not a window


class Identity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two engines may share blocks exactly when their identities are equal.

    Every field must be given; IdentityError `incomplete_identity` names the ones that are not. Empty is accepted
    only where it says something ("", {} and () below). Which shard of a block a worker has is not part of it.
    """

    engine: str | UnsetType = UNSET  # "vllm", "sglang", "transformers"
    architecture: str | UnsetType = UNSET  # the model's class
    weights: str | UnsetType = UNSET  # content fingerprint, see fingerprint_weights
    weight_version: str | UnsetType = UNSET  # "" until weights change at run time; each change is another one
    adapter: Adapter | UnsetType | None = UNSET  # None: the base model
    compute_dtype: str | UnsetType = UNSET  # "float32"
    kv_dtype: str | UnsetType = UNSET  # "float32", "fp8_e4m3"
    kv_scales: str | UnsetType = UNSET  # fingerprint of k and v scales, "none" where the dtype needs none
    quantization: str | UnsetType = UNSET  # "none", "awq", …
    attention_backend: str | UnsetType = UNSET
    instruction_set: str | UnsetType = UNSET  # "x86_64 avx2", "sm_90": layouts inside a block depend on it
    layout: str | UnsetType = UNSET  # order of axes in a block, as the engine states it
    block_size_tokens: int | UnsetType = UNSET  # tokens of one block hash
    blocks_per_object: int | UnsetType = UNSET  # engine blocks in one value
    layer_count: int | UnsetType = UNSET
    kv_head_count: int | UnsetType = UNSET  # of the whole model; 1 for MLA
    head_size: int | UnsetType = UNSET
    kv_groups: tuple[KvGroup, ...] | UnsetType = UNSET
    model_config: Mapping[str, Any] | UnsetType = UNSET  # the model's configuration, see clean_model_config
    config_overrides: Mapping[str, Any] | UnsetType | None = UNSET  # rope, media processing, … set on the command line
    speculative: Mapping[str, Any] | UnsetType | None = UNSET  # extra layers of a draft model; {}: none
    tensor_parallel_size: int | UnsetType = UNSET  # 1 where every shard has the same bytes (MLA)
    pipeline_parallel_size: int | UnsetType = UNSET
    context_parallel_size: int | UnsetType = UNSET
    salt: str | UnsetType = UNSET  # "": none; engines with different salts share nothing
    hash_algorithm: str | UnsetType = UNSET  # of the block hashes: "sha256_cbor"
    hash_seed: str | UnsetType = UNSET  # fingerprint of the value that the first block's hash starts from

    def __post_init__(self) -> None:
        missing = [name for name in self.__struct_fields__ if _is_missing(name, getattr(self, name))]
        if missing:
            raise IdentityError(
                f"identity is incomplete: {', '.join(missing)} not given; blocks are not shared without",
                kind="incomplete_identity",
            )
        # msgspec checks types only when decoding, and None beside "" would be a second spelling of nothing.
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in _SIZES and (type(value) is not int or value < 1):
                raise IdentityError(f"identity field {name} = {value!r}: a whole number of at least 1")
            if name not in _SIZES | _STRUCTURED and not isinstance(value, str):
                raise IdentityError(f"identity field {name} = {value!r}: text, empty for none")

    def fields(self) -> dict[str, str]:
        """Dotted field name → value as JSON text; what `describe` sends and `differences` compares."""
        return flatten(_plain(self))


class Difference(Struct, frozen=True):
    """One field in which two identities differ; "absent" where one has no such entry."""

    field: str
    first: str
    second: str


_MAY_BE_EMPTY = frozenset({"weight_version", "adapter", "config_overrides", "speculative", "salt"})
_SIZES = frozenset(
    {
        "block_size_tokens",
        "blocks_per_object",
        "layer_count",
        "kv_head_count",
        "head_size",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "context_parallel_size",
    }
)
_STRUCTURED = frozenset({"adapter", "kv_groups", "model_config", "config_overrides", "speculative"})


def namespace_id(identity: Identity, *, tenant: str) -> int:
    """64-bit digest of tenant and identity (with hash algorithm and seed); never 0, which means "no tag"."""
    if not tenant:
        raise IdentityError("no tenant: name one (client.tenant)")
    digest = canonical_digest({"identity": _plain(identity), "tenant": tenant})
    return int.from_bytes(digest[:8], "little") or 1


def with_adapter(identity: Identity, adapter: Adapter | None) -> Identity:
    """The identity of requests that use this adapter."""
    return msgspec.structs.replace(identity, adapter=adapter)


def with_weight_version(identity: Identity, version: str) -> Identity:
    """The identity after the weights were changed at run time: another namespace at once."""
    return msgspec.structs.replace(identity, weight_version=version)


def differences(first: Identity, second: Identity) -> list[Difference]:
    """Every field in which the two differ, with both values. Empty: they share a namespace (of one tenant)."""
    return field_differences(first.fields(), second.fields())


def field_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """As `differences`, of two `Identity.fields()` that came over the wire."""
    return [
        Difference(name, first.get(name, "absent"), second.get(name, "absent"))
        for name in sorted(first.keys() | second.keys())
        if first.get(name, "absent") != second.get(name, "absent")
    ]


def clean_model_config(config: Mapping[str, Any], volatile: Iterable[str] = VOLATILE_CONFIG_NAMES) -> dict[str, Any]:
    """A model's configuration without the entries that no byte depends on, at every depth."""
    names = frozenset(volatile)
    return {
        key: clean_model_config(value, names) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in names
    }


def _is_missing(name: str, value: object) -> bool:
    if value is UNSET:
        return True
    return name not in _MAY_BE_EMPTY and (value == "" or is_empty(value))


def _plain(identity: Identity) -> dict[str, Any]:
    return msgspec.structs.asdict(identity)
