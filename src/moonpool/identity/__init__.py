"""Who may share blocks with whom: identity, namespaces, keys and fingerprints.

Pure, apart from reading weight files. `Identity` declares everything that the bytes of a block depend on besides
its tokens; `namespace_id` is its digest with the tenant; `block_key` names one block of one shard inside it.
"""

from moonpool.identity.canonical import canonical_bytes, canonical_digest
from moonpool.identity.chain import Media, block_hashes, media_id, refusal_to_share
from moonpool.identity.description import (
    EngineCounters,
    EngineDescription,
    GroupDescription,
    RequestOutcome,
    decode_description,
    encode_description,
)
from moonpool.identity.identity import (
    Adapter,
    Difference,
    Identity,
    KvGroup,
    clean_model_config,
    differences,
    field_differences,
    namespace_id,
    with_adapter,
    with_weight_version,
)
from moonpool.identity.keys import (
    BlockKey,
    Shard,
    block_hash_hint,
    block_hash_hints,
    block_key,
    block_keys,
    digest_hints,
    key_prefix,
    parse_block_key,
    shard_of,
)
from moonpool.identity.machine import instruction_set
from moonpool.identity.weights import fingerprint_adapter, fingerprint_weights

__all__ = [
    "Adapter",
    "BlockKey",
    "Difference",
    "EngineCounters",
    "EngineDescription",
    "GroupDescription",
    "Identity",
    "KvGroup",
    "Media",
    "RequestOutcome",
    "Shard",
    "block_hash_hint",
    "block_hash_hints",
    "block_hashes",
    "block_key",
    "block_keys",
    "canonical_bytes",
    "canonical_digest",
    "clean_model_config",
    "decode_description",
    "differences",
    "digest_hints",
    "encode_description",
    "field_differences",
    "fingerprint_adapter",
    "fingerprint_weights",
    "instruction_set",
    "key_prefix",
    "media_id",
    "namespace_id",
    "parse_block_key",
    "refusal_to_share",
    "shard_of",
    "with_adapter",
    "with_weight_version",
]
