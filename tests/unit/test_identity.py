"""Identity: complete or refused, one change another namespace, and the difference is named."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import IdentityError, UsageError
from moonpool.identity import (
    Adapter,
    EngineDescription,
    Identity,
    KvGroup,
    RequestOutcome,
    block_hash_hint,
    block_hash_hints,
    block_key,
    block_keys,
    clean_model_config,
    decode_description,
    differences,
    digest_hints,
    encode_description,
    instruction_set,
    key_prefix,
    namespace_id,
    parse_block_key,
    refusal_to_share,
    shard_of,
    with_adapter,
    with_weight_version,
)
from moonpool.identity.description import DESCRIPTION_BYTES_MAX

COMPLETE: dict[str, Any] = {
    "engine": "vllm",
    "architecture": "LlamaForCausalLM",
    "weights": "full:00",
    "weight_version": "",
    "adapter": None,
    "compute_dtype": "float32",
    "kv_dtype": "float32",
    "kv_scales": "none",
    "quantization": "none",
    "attention_backend": "CPU_ATTN",
    "instruction_set": "x86_64 avx2",
    "layout": "NHD",
    "block_size_tokens": 32,
    "blocks_per_object": 1,
    "layer_count": 2,
    "kv_head_count": 2,
    "head_size": 16,
    "kv_groups": (KvGroup(kind="full", layers=("a", "b"), block_size_tokens=32, block_bytes=8192),),
    "model_config": {"rope_theta": 10000.0, "rope_scaling": None, "vocab_size": 100},
    "config_overrides": {},
    "speculative": None,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "context_parallel_size": 1,
    "salt": "",
    "hash_algorithm": "sha256_cbor",
    "hash_seed": "5e",
}

# Fault 23: one change, another key.
CHANGES: dict[str, Any] = {
    "engine": "sglang",
    "architecture": "MistralForCausalLM",
    "weights": "full:01",
    "weight_version": "1",
    "adapter": Adapter("a", "00"),
    "compute_dtype": "bfloat16",
    "kv_dtype": "fp8_e4m3",
    "kv_scales": "01",
    "quantization": "awq",
    "attention_backend": "FLASH_ATTN",
    "instruction_set": "x86_64 avx512",
    "layout": "HND",
    "block_size_tokens": 64,
    "blocks_per_object": 2,
    "layer_count": 3,
    "kv_head_count": 1,
    "head_size": 32,
    "kv_groups": (KvGroup(kind="full", layers=("b", "a"), block_size_tokens=32, block_bytes=8192),),
    "model_config": {"rope_theta": 10000.5, "vocab_size": 100},
    "config_overrides": {"rope_scaling": {"factor": 2}},
    "speculative": {"method": "eagle"},
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "context_parallel_size": 2,
    "salt": "s",
    "hash_algorithm": "sha256",
    "hash_seed": "5f",
}


def identity(**changes: object) -> Identity:
    return Identity(**{**COMPLETE, **changes})


def namespace(**changes: object) -> int:
    return namespace_id(identity(**changes), tenant="default")


def test_every_field_has_a_change_here() -> None:
    assert set(COMPLETE) == set(CHANGES) == set(Identity.__struct_fields__)


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_missing_field_is_refused_by_name(name: str) -> None:
    with pytest.raises(IdentityError, match=rf"incomplete: {name} not given") as caught:
        Identity(**{key: value for key, value in COMPLETE.items() if key != name})
    assert caught.value.kind == "incomplete_identity"


def test_all_missing_fields_are_named_at_once() -> None:
    with pytest.raises(IdentityError, match=r"weights, .*salt") as caught:
        Identity()
    assert all(name in str(caught.value) for name in COMPLETE)


@pytest.mark.parametrize("name", ["weights", "kv_dtype", "layout", "kv_groups", "model_config", "hash_seed"])
def test_empty_field_that_says_nothing_is_refused(name: str) -> None:
    with pytest.raises(IdentityError, match=name):
        identity(**{name: type(COMPLETE[name])()})


@pytest.mark.parametrize("value", [0, -1, True, "32", 1.5])
def test_number_that_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(IdentityError, match="block_size_tokens"):
        identity(block_size_tokens=value)


@pytest.mark.parametrize("name", ["weights", "salt", "weight_version", "hash_seed"])
@pytest.mark.parametrize("value", [None, 5, b"x"])
def test_text_field_that_is_no_text_is_refused(name: str, value: object) -> None:
    with pytest.raises(IdentityError, match=name):
        identity(**{name: value})


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_one_change_gives_another_namespace_and_only_that_field_is_named(name: str) -> None:
    changed = identity(**{name: CHANGES[name]})
    assert namespace_id(changed, tenant="default") != namespace()
    found = differences(identity(), changed)
    assert {difference.field.partition(".")[0] for difference in found} == {name}
    assert all(difference.first != difference.second for difference in found)


def test_all_namespaces_of_single_changes_differ() -> None:
    namespaces = {namespace(**{name: value}) for name, value in CHANGES.items()}
    assert len(namespaces | {namespace()}) == len(CHANGES) + 1


def test_tenants_have_namespaces_of_their_own_and_must_be_named() -> None:
    assert namespace_id(identity(), tenant="a") != namespace_id(identity(), tenant="b")
    with pytest.raises(IdentityError, match="tenant"):
        namespace_id(identity(), tenant="")


@pytest.mark.parametrize("field", ["config_overrides", "speculative"])
@pytest.mark.parametrize("nothing", [None, {}, {"x": None}, {"x": {}}, {"x": {"y": []}}])
def test_nothing_is_nothing_however_it_is_written(field: str, nothing: object) -> None:
    assert namespace(**{field: nothing}) == namespace()
    assert differences(identity(**{field: nothing}), identity()) == []


def test_order_and_notation_do_not_count() -> None:
    one = {"vocab_size": 100, "rope_theta": 10000, "list": (1, 2), "set": {"b", "a"}}
    two = {"set": frozenset(["a", "b"]), "list": [1, 2], "rope_theta": 10000.0, "vocab_size": 100}
    assert namespace(model_config=one) == namespace(model_config=two)


@pytest.mark.parametrize(
    ("one", "two"),
    [({"x": 1}, {"x": True}), ({"x": "1"}, {"x": 1}), ({"x": [1, 2]}, {"x": [2, 1]}), ({"x": 0}, {"x": None}),
     ({"x": ""}, {}), ({"a": {"b": 1}}, {"a": 1, "b": 1}), ({"a.b": 1, "c": 1}, {"a": {"b": 1, "c": 1}})],
)  # fmt: skip
def test_what_differs_by_meaning_differs(one: object, two: object) -> None:
    assert namespace(config_overrides=one) != namespace(config_overrides=two)
    assert differences(identity(config_overrides=one), identity(config_overrides=two))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", object()])
def test_value_without_one_spelling_is_refused(value: object) -> None:
    with pytest.raises(IdentityError):
        namespace(model_config={"x": value})


def test_difference_has_both_values() -> None:
    found = differences(identity(), identity(model_config={"rope_theta": 10000.0, "vocab_size": 200, "new": "x"}))
    assert [(each.field, each.first, each.second) for each in found] == [
        ("model_config.new", "absent", '"x"'),
        ("model_config.vocab_size", "100", "200"),
    ]


def test_adapter_and_weight_version_roll_the_namespace() -> None:
    first, renamed, changed = (
        namespace_id(with_adapter(identity(), adapter), tenant="default")
        for adapter in (Adapter("a", "00"), Adapter("b", "00"), Adapter("a", "01"))
    )
    rolled = namespace_id(with_weight_version(identity(), "2"), tenant="default")
    assert len({first, renamed, changed, rolled, namespace()}) == 5
    assert (
        namespace_id(with_adapter(with_adapter(identity(), Adapter("a", "00")), None), tenant="default") == namespace()
    )


def test_namespace_is_the_one_of_the_first_release() -> None:
    """A change here makes every warm cache cold: only with a new CANONICAL_VERSION, and in the change log."""
    assert namespace() == 0xA3340D868816728D


def test_clean_model_config_drops_only_where_the_files_came_from() -> None:
    config = {"_name_or_path": "/x", "text": {"transformers_version": "5", "hidden_size": 1}, "vocab_size": 2}
    assert clean_model_config(config) == {"text": {"hidden_size": 1}, "vocab_size": 2}


# Keys ---------------------------------------------------------------------------------------------------------


def test_key_differs_by_each_of_its_parts_and_can_be_read_back() -> None:
    parts = [(7, 0, 0, b"h"), (8, 0, 0, b"h"), (7, 1, 0, b"h"), (7, 0, 1, b"h"), (7, 0, 0, b"i")]
    keys = [block_key(space, block, kv_group=group, shard_index=shard) for space, group, shard, block in parts]
    assert len(set(keys)) == len(parts)
    assert [parse_block_key(key) for key in keys] == parts


def test_other_keys_are_no_block_keys() -> None:
    assert [parse_block_key(key) for key in (b"", b"hello", key_prefix(1), b"kv2\0" + bytes(40))] == [None] * 4


def test_batch_of_keys_is_the_same_as_one_by_one() -> None:
    hashes = [bytes([number]) * 32 for number in range(5)]
    assert block_keys(key_prefix(9, kv_group=2, shard_index=3), hashes) == [
        block_key(9, each, kv_group=2, shard_index=3) for each in hashes
    ]


def test_replicated_data_has_a_shard_neutral_key_and_sharded_data_has_not() -> None:
    def keys(replicated: bool) -> set[bytes]:
        shards = [shard_of(rank, 4, replicated=replicated) for rank in range(4)]
        return {block_key(1, b"h" * 32, shard_index=shard.shard_index) for shard in shards}

    assert len(keys(replicated=True)) == 1
    assert len(keys(replicated=False)) == 4
    assert shard_of(0, 1, replicated=True) == shard_of(3, 8, replicated=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: key_prefix(0),
        lambda: key_prefix(2**64),
        lambda: key_prefix(1, kv_group=2**16),
        lambda: key_prefix(1, shard_index=-1),
        lambda: block_key(1, b""),
        lambda: block_key(1, bytes(1020)),
        lambda: shard_of(2, 2, replicated=False),
    ],
)
def test_key_of_nonsense_is_refused(call: Any) -> None:
    with pytest.raises(UsageError):
        call()


def test_hint_is_what_vllm_publishes_and_never_zero() -> None:
    block = bytes(range(32))
    assert block_hash_hint(block) == int.from_bytes(block, "big") & (2**64 - 1)
    assert block_hash_hint(bytes(32)) == 1
    assert list(block_hash_hints([block, bytes(32)])) == [block_hash_hint(block), 1]


@pytest.mark.parametrize("length", [1, 7, 8, 20, 32])
def test_hints_of_many_are_those_of_each_whatever_the_length(length: int) -> None:
    hashes = [(number * 0x9E3779B97F4A7C15 % 256**length).to_bytes(length, "big") for number in range(300)]
    assert list(block_hash_hints(hashes)) == [block_hash_hint(block_hash) for block_hash in hashes]
    assert list(block_hash_hints(hashes[1:2])) == [block_hash_hint(hashes[1])]
    assert list(block_hash_hints(())) == []


@given(st.integers(1, 40), st.lists(st.integers(0, 2**64 - 1) | st.just(0), max_size=20), st.randoms())
def test_hints_of_digests_of_one_width_are_those_of_block_hashes(width: int, lows: list[int], random: Any) -> None:
    digests = [(random.randbytes(width) + low.to_bytes(8, "big"))[-width:] for low in lows]
    assert list(digest_hints(digests)) == list(block_hash_hints(digests))


def test_ids_that_a_client_picked_are_not_shared_unless_allowed() -> None:
    assert not refusal_to_share(client_media_ids=False, prompt_embeddings=False, allowed=False)
    assert "share_media" in refusal_to_share(client_media_ids=True, prompt_embeddings=False, allowed=False)
    assert "embeddings" in refusal_to_share(client_media_ids=False, prompt_embeddings=True, allowed=False)
    assert not refusal_to_share(client_media_ids=True, prompt_embeddings=True, allowed=True)


# Descriptions -------------------------------------------------------------------------------------------------


def test_description_survives_the_wire_as_text_and_as_part_of_a_status() -> None:
    description = EngineDescription(
        engine_id="A", identity=identity().fields(), outcomes=[RequestOutcome(request_id="1", applied_tokens=5)]
    )
    text = encode_description(description)
    assert decode_description(text) == decode_description(json.loads(text)) == description


def test_too_long_description_loses_its_oldest_outcomes() -> None:
    outcomes = [RequestOutcome(request_id=str(number), detail="x" * 4000) for number in range(64)]
    text = encode_description(EngineDescription(engine_id="A", outcomes=outcomes))
    kept = decode_description(text)
    assert len(text) <= DESCRIPTION_BYTES_MAX
    assert kept is not None
    assert kept.outcomes
    assert kept.outcomes[-1] == outcomes[-1]


def test_description_of_another_client_is_none() -> None:
    assert decode_description('{"program": "x"}') is None
    assert decode_description("no json") is None
    assert decode_description(None) is None


# Machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "text", "expected"),
    [
        ("x86_64", "processor : 0\nflags\t\t: fpu avx avx2\n", "x86_64 avx2"),
        ("x86_64", "flags : avx avx2 avx512f amx_tile\n", "x86_64 amx_tile avx512f"),
        ("aarch64", "Features : fp asimd bf16\n", "aarch64 bf16"),
        ("riscv64", "isa : rv64\n", "riscv64"),
    ],
)
def test_instruction_set_names_the_strongest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, text: str, expected: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    (tmp_path / "cpuinfo").write_text(text)
    assert instruction_set(tmp_path / "cpuinfo") == expected
    assert instruction_set(tmp_path / "absent") == machine


# Across processes (fault 22) ----------------------------------------------------------------------------------

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from test_identity import COMPLETE, identity, namespace
from moonpool.identity import block_hashes, block_key
names = set("abcdefgh")
overrides = {name: {"set": names} for name in names}
extra = {"none": None} if len(sys.argv) > 2 else {}
print(namespace(config_overrides=overrides), block_key(namespace(), block_hashes(
    list(range(64)), block_size_tokens=32, extra=extra)[-1]).hex())
"""


def test_processes_with_other_hash_seeds_and_orders_compute_the_same_keys() -> None:
    here = str(Path(__file__).parent)
    seen = set()
    for seed in ("0", "1", "4242", "random"):
        for arguments in ((), ("none instead of empty",)):
            done = subprocess.run(
                [sys.executable, "-c", CHILD, here, *arguments],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                timeout=240,
                check=True,
            )
            assert re.fullmatch(r"\d+ [0-9a-f]+", done.stdout.strip())
            seen.add(done.stdout)
    assert len(seen) == 1
