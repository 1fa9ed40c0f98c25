"""The conductor's block hashes against the functions of the installed vLLM, byte for byte."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from moonpool.conductor.hashes import ALGORITHMS, Extras, HashRules, block_hashes, hint_of, hints
from moonpool.identity import Media

pytestmark = pytest.mark.engine

BLOCK = 16
SEEDS = ["0", "vllm-none-hash", "a seed of our own ✓"]


def request_of(tokens: list[int], extras: Extras) -> Any:
    """What vLLM's functions read of a request."""
    import torch

    features = [
        SimpleNamespace(
            identifier=medium.id, mm_position=SimpleNamespace(offset=medium.token_offset, length=medium.token_count)
        )
        for medium in extras.media
    ]
    adapter = SimpleNamespace(lora_name=extras.lora_name, lora_path=extras.lora_path) if extras.lora_name else None
    embeds = None
    if extras.embedding_digests:
        embeds = torch.arange(len(tokens) * 4, dtype=torch.float32).reshape(len(tokens), 4)
    return SimpleNamespace(
        mm_features=features, lora_request=adapter, cache_salt=extras.cache_salt or None, prompt_embeds=embeds,
        _prompt_embeds_per_block_hashes={},
    )  # fmt: skip


def vllm_hashes(
    tokens: list[int], extras: Extras, *, algorithm: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """As vLLM's request block hasher computes them."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils

    if seed == kv_cache_utils.DEFAULT_NONE_HASH_SEED:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    else:
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    digest = get_hash_fn_by_name(algorithm)
    kv_cache_utils.init_none_hash(digest)
    request = request_of(tokens, extras)
    parent, found, medium = None, [], 0
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        keys, medium = kv_cache_utils.generate_block_hash_extra_keys(request, start, start + BLOCK, medium)
        parent = kv_cache_utils.hash_block_tokens(digest, parent, tokens[start : start + BLOCK], keys)
        found.append(bytes(parent))
    return found


def embedding_digests(tokens: list[int]) -> tuple[bytes, ...]:
    import hashlib

    import torch
    from vllm.v1.utils import tensor_data

    embeds = torch.arange(len(tokens) * 4, dtype=torch.float32).reshape(len(tokens), 4)
    starts = range(0, len(tokens) - BLOCK + 1, BLOCK)
    return tuple(hashlib.sha256(tensor_data(embeds[start : start + BLOCK])).digest() for start in starts)


CASES = {
    "plain": Extras(),
    "adapter": Extras(lora_name="sql", lora_path="/adapters/sql"),
    "salt": Extras(cache_salt="tenant 7"),
    "one medium over three blocks": Extras(media=(Media("image-a", 5, 40),)),
    "media side by side": Extras(media=(Media("a", 0, 16), Media("b", 16, 10), Media("a", 30, 4), Media("c", 70, 20))),
    "all": Extras(
        lora_name="sql", lora_path="/adapters/sql", cache_salt="salt ü", media=(Media("m", 1, 1), Media("m", 17, 300)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES)
def test_hashes_are_those_of_the_installed_vllm(
    algorithm: str, seed: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if algorithm.startswith("xxhash") and seed == "vllm-none-hash":
        pytest.skip("vLLM draws a random seed there")
    if algorithm.startswith("xxhash"):
        from vllm.utils import hashing

        assert hashing._xxhash is not None
    draw = random.Random(f"{algorithm} {case}")
    tokens = [
        draw.choice([draw.randrange(24), draw.randrange(300), draw.randrange(2**17), 2**32 - 1]) for _ in range(99)
    ]
    rules = HashRules(algorithm=algorithm, seed=seed, block_size_tokens=BLOCK)
    expected = vllm_hashes(tokens, CASES[case], algorithm=algorithm, seed=seed, monkeypatch=monkeypatch)
    assert len(expected) == 6
    assert block_hashes(rules, tokens, CASES[case]) == expected


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_prompt_embeddings_are_hashed_by_their_digests(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [0] * 48
    extras = Extras(embedding_digests=embedding_digests(tokens))
    rules = HashRules(algorithm=algorithm, seed="0", block_size_tokens=BLOCK)
    expected = vllm_hashes(tokens, extras, algorithm=algorithm, seed="0", monkeypatch=monkeypatch)
    assert block_hashes(rules, tokens, extras) == expected


def test_hints_are_what_events_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_utils import BlockHash, maybe_convert_block_hash

    tokens = list(range(64))
    rules = HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=BLOCK)
    hashes = block_hashes(rules, tokens)
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1")
    published = [maybe_convert_block_hash(BlockHash(each)) for each in hashes]
    assert hints(rules, hashes).tolist() == [hint_of(each) for each in published]
    assert hints(rules, hashes).tolist() == [hint_of(each) for each in hashes], "whole hashes say the same"


def test_events_of_the_installed_vllm_are_understood() -> None:
    import msgspec
    from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

    from moonpool.conductor.events import Cleared, Removed, Stored, decode
    from moonpool.types import Tier

    stored = BlockStored(
        block_hashes=[7, b"\x01" * 32], parent_block_hash=None, token_ids=list(range(32)), block_size=16, lora_id=None,
        medium="GPU", lora_name="sql", extra_keys=[("sql", ("image", 3)), None], group_idx=1,
        kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=40, session_id="s",
    )  # fmt: skip
    removed = BlockRemoved(block_hashes=[9], medium="CPU", group_idx=0)
    payload = msgspec.msgpack.encode(KVEventBatch(1.5, [stored, removed, AllBlocksCleared()], 3))
    batch = decode(payload)
    assert (batch.rank, batch.skipped) == (3, 0)
    first, second, third = batch.events
    assert isinstance(first, Stored)
    assert first.hashes == [7, 0x0101010101010101]
    assert (first.tier, first.kv_group, first.block_size_tokens, first.lora_name) == (Tier.ENGINE, 1, 16, "sql")
    assert first.token_ids() == list(range(32))
    assert first.published_keys() == [["sql", ["image", 3]], None]
    assert (first.group_kind, first.window_tokens) == ("sliding_window", 40)
    assert second == Removed([9], Tier.DRAM, 0)
    assert third == Cleared()
