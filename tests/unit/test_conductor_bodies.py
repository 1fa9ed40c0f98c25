"""Request bodies of the conductor's API: what is accepted, and how each mistake is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonpool.conductor import bodies
from moonpool.conductor.hashes import Extras, HashRules
from moonpool.conductor.scoring import Load
from moonpool.errors import BadRequest
from moonpool.identity import Media
from moonpool.types import GroupRule

PROFILE = {
    "strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0", "index_projection": "low64_be",
}  # fmt: skip
REGISTER = {
    "endpoint": "tcp://10.0.0.1:5557", "type": "vLLM", "modelname": "m", "instance_id": "A", "block_size": 16,
    "dp_rank": 2, "hash_profile": PROFILE, "replay_endpoint": "tcp://10.0.0.1:5558", "lora_name": None,
    "tenant_id": "t", "cache_group": None,
}  # fmt: skip


def test_mooncake_s_registration_is_understood() -> None:
    found = bodies.registration(REGISTER)
    assert found.key == ("A", "t", 2)
    assert (found.kind, found.endpoint, found.replay_endpoint) == ("vLLM", "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558")
    assert found.rules == HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=16)


def test_what_is_not_said_is_vllm_s_default() -> None:
    short = {name: REGISTER[name] for name in ("endpoint", "modelname", "instance_id", "block_size")}
    found = bodies.registration(short)
    assert (found.tenant, found.data_rank, found.rules) == ("default", 0, HashRules(block_size_tokens=16))
    assert found.rules.seed == "vllm-none-hash"
    sglang = bodies.registration({**short, "type": "SGLang"})
    assert sglang.rules.strategy == "sglang"
    groups = bodies.registration({**short, "kv_groups": [{"kv_group": 0}, {"kv_group": 1, "window_block_count": 3}]})
    assert groups.groups == (GroupRule(0, 1, 0), GroupRule(1, 1, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"endpoint": None}, "missing"),
        ({"endpoint": ""}, "invalid_registration"),
        ({"endpoint": "tcp://*:5557"}, "invalid_registration"),
        ({"endpoint": "tcp://[::]:5557"}, "invalid_registration"),
        ({"endpoint": "http://a:1"}, "invalid_registration"),
        ({"endpoint": "tcp://a:99999"}, "invalid_registration"),
        ({"replay_endpoint": "tcp://*:1"}, "invalid_registration"),
        ({"block_size": 0}, "invalid_registration"),
        ({"block_size": -1}, "out_of_range"),
        ({"block_size": "16"}, "invalid_type"),
        ({"dp_rank": 70_000}, "invalid_registration"),
        ({"instance_id": ""}, "invalid_registration"),
        ({"type": "TGI"}, "out_of_range"),
        ({"cache_group": 3}, "out_of_range"),
        ({"url": "file:///etc/passwd"}, "invalid_registration"),
        ({"url": "http://a:1/v1?x"}, "invalid_registration"),
        ({"blocksize": 16}, "unknown_field"),
        ({"kv_groups": [{"window": 1}]}, "invalid_type"),
        ({"hash_profile": {"algorithm": "md5"}}, "invalid_registration"),
        ({"hash_profile": {"strategy": "md5"}}, "out_of_range"),
        ({"hash_profile": {"seed": "1"}}, "unknown_field"),
        ({"hash_profile": {"extra_keys": "some"}}, "out_of_range"),
    ],
)
def test_a_wrong_registration_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        bodies.registration({**REGISTER, **change})
    assert (bodies.refusal(refused.value)["reason"], refused.value.status) == (reason, 400)
    assert bodies.refusal(refused.value)["error"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", {"reason": "invalid_json"}),
        (b"[]", {"reason": "invalid_json"}),
        (b"{}", {"reason": "missing", "field": "model"}),
        (b'{"model": "m"}', {"reason": "missing", "field": "token_ids"}),
        (b'{"model": "m", "token_ids": 7}', {"reason": "not_array", "field": "token_ids"}),
        (b'{"model": 7, "token_ids": []}', {"reason": "invalid_type", "field": "model"}),
        (b'{"model": "m", "token_ids": [1, -1]}', {"reason": "out_of_range", "field": "token_ids", "index": 1}),
        (b'{"model": "m", "token_ids": [1, 2.5]}', {"reason": "invalid_type", "field": "token_ids", "index": 1}),
        (b'{"model": "m", "token_ids": [], "salt": ""}', {"reason": "unknown_field", "field": "salt"}),
        (b'{"model": "m", "token_ids": [], "block_size": true}', {"reason": "invalid_type", "field": "block_size"}),
    ],
)
def test_a_wrong_body_is_named(content: bytes, expected: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        bodies.question(bodies.parse(content))
    said = dict(bodies.refusal(refused.value))
    assert (said.pop("error") != "", said) == (True, expected)


def test_a_question_tells_all_that_its_hashes_cover() -> None:
    document = {
        "model": "m", "token_ids": [1, 2], "lora_name": "sql", "lora_path": "/a", "cache_salt": "s", "tenant_id": "t",
        "media": [{"id": "b", "token_offset": 9, "token_count": 2}, {"id": "a", "token_offset": 1, "token_count": 2}],
    }  # fmt: skip
    asked = bodies.question(bodies.parse(json.dumps(document).encode()))
    media = (Media("a", 1, 2), Media("b", 9, 2))
    assert asked.extras == Extras(lora_name="sql", lora_path="/a", cache_salt="s", media=media)
    assert (asked.tenant, asked.tokens) == ("t", [1, 2])


def test_hashes_may_have_a_sign_and_none_is_zero() -> None:
    asked = bodies.question({"model": "m", "seq_hashes": [-1, 2**64 - 1, 5, 0]}, by_hash=True)
    assert asked.hashes == [2**64 - 1, 2**64 - 1, 5, 1]


def test_candidates_are_names_or_say_their_load() -> None:
    document = {
        "model": "m", "block_hashes": [1], "token_count": 99,
        "candidates": ["A", {"instance_id": "B", "dp_rank": 1, "queue_ms": 2.5, "queued_tokens": 7}],
    }  # fmt: skip
    asked, wanted = bodies.scoring(document)
    assert (asked.token_count, asked.hashes) == (99, [1])
    assert wanted == [("A", None, Load()), ("B", 1, Load(queue_ms=2.5, queued_tokens=7))]
    for wrong in (
        [7],
        [{"name": "A"}],
        [{"instance_id": "A", "queue_ms": -1}],
        [{"instance_id": "A", "queue_ms": "1"}],
    ):
        with pytest.raises(BadRequest):
            bodies.scoring({**document, "candidates": wrong})
