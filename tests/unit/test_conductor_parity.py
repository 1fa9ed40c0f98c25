"""What a worker is held to, event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moonpool.conductor.events import Stored
from moonpool.conductor.hashes import NO_EXTRAS, Extras, HashRules, block_hashes, hints
from moonpool.conductor.parity import CHECKED_FIRST, GROUP_COUNT_MAX, Parity
from moonpool.conductor.registration import Registration
from moonpool.identity import Media
from moonpool.types import GroupRule, Tier

RULES = HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=4)
TOKENS = [1, 2, 3, 4, 5, 6, 7, 8]


def registration(**changes: Any) -> Registration:
    return Registration(**{"instance_id": "A", "model": "m", "endpoint": "tcp://a:1", "rules": RULES, **changes})


def stored(
    prompt: list[int] | None = None, *, rules: HashRules = RULES, extras: Extras = NO_EXTRAS, **changes: Any
) -> Stored:
    chosen = TOKENS if prompt is None else prompt
    event = Stored(
        hints(rules, block_hashes(rules, chosen, extras)).tolist(), Tier.ENGINE, kv_group=0, block_size_tokens=4,
        tokens=msgspec.Raw(msgspec.msgpack.encode(chosen)),
    )  # fmt: skip
    return msgspec.structs.replace(event, **changes)


def failure(event: Stored, *, rank: int | None = 0, **changes: Any) -> str:
    parity = Parity(registration(**changes))
    parity.observe(event, rank)
    return parity.failure


def test_what_fits_is_proven() -> None:
    parity = Parity(registration())
    assert not parity.proven
    parity.observe(stored(), 0)
    assert (parity.failure, parity.proven, parity.groups) == ("", True, {0: GroupRule(0, 1, 0)})


def test_each_thing_that_does_not_fit_is_named() -> None:
    other = HashRules(algorithm="sha256", seed="vllm-none-hash", block_size_tokens=4)
    fits = "hash: its blocks fit sha256 with seed 'vllm-none-hash', registered are sha256_cbor with seed '0'"
    assert failure(stored(rules=other)) == fits
    assert failure(stored(hashes=[5, 6])).startswith("hash: the engine publishes 0000000000000005")
    assert (
        failure(stored(block_size_tokens=8)) == "block size: the engine publishes blocks of 8 tokens, registered are 4"
    )
    assert failure(stored(kv_group=1), groups=(GroupRule(0, 1, 0),)).startswith(
        "kv_groups: the engine publishes group 1"
    )
    assert failure(stored(), rank=3) == "dp_rank: events of rank 3 come from where rank 0 was registered"
    assert failure(stored(), rank=None) == ""


def test_what_cannot_be_compared_is_neither_proven_nor_wrong() -> None:
    parity = Parity(registration())
    for event in (
        stored(hashes=[9], parent=5),
        stored(hashes=[9], lora_name="sql"),
        stored(hashes=[9], tokens=msgspec.Raw(b"\xc0")),
        stored(hashes=[9], tokens=msgspec.Raw(msgspec.msgpack.encode([1, 2]))),
    ):
        parity.observe(event, 0)
    assert (parity.failure, parity.proven) == ("", False)


@pytest.mark.parametrize(
    ("extras", "published"),
    [
        (Extras(cache_salt="s"), [["s"], None]),
        (Extras(media=(Media("image", 1, 2),)), [[["image", 1]], None]),
        (Extras(media=(Media("image", 1, 7),)), [[["image", 1]], [["image", -3]]]),
        (Extras(embedding_digests=(b"1" * 32, b"2" * 32)), [[b"1" * 32], [b"2" * 32]]),
    ],
)
def test_salts_media_and_embeddings_are_taken_from_the_event(extras: Extras, published: list[Any]) -> None:
    parity = Parity(registration())
    parity.observe(stored(extras=extras, extra_keys=msgspec.Raw(msgspec.msgpack.encode(published))), 0)
    assert (parity.failure, parity.proven) == ("", True)
    assert failure(stored(extras=extras)).startswith("hash:"), "an engine that hides them is found out"


def test_a_sample_that_the_engine_computed_is_compared_at_once() -> None:
    mine = block_hashes(RULES, [1, 2, 3, 4])[0].hex()
    assert Parity(registration(sample_hash=mine)).proven
    assert Parity(registration(sample_hash="00" + mine[2:])).failure.startswith("hash: the engine computes 00")


def test_groups_are_learnt_with_their_windows_and_coarser_ones_are_left_out() -> None:
    parity = Parity(registration())
    parity.observe(stored(kv_group=1, parent=1, group_kind="sliding_window", window_tokens=10), 0)
    parity.observe(stored(kv_group=2, parent=1, block_size_tokens=16), 0)
    assert parity.groups == {1: GroupRule(1, 1, 3)}
    assert parity.remarks == ["kv_group 2 has blocks of 16 tokens and is not matched"]
    assert not parity.counts(2)


def test_a_group_of_a_rule_that_no_look_up_knows_is_left_out_and_said() -> None:
    parity = Parity(registration(groups=(GroupRule(0, 1, 0),), unmatched_groups=(1,)))
    parity.observe(stored(kv_group=1, block_size_tokens=64, hashes=[9]), 0)
    parity.observe(stored(), 0)
    assert (parity.failure, parity.proven, parity.counts(0), parity.counts(1)) == ("", True, True, False)
    assert parity.remarks == ["kv_groups 1 follow rules that no look-up knows: hits may be shorter than told"]


def test_a_worker_cannot_make_up_groups_without_end() -> None:
    parity = Parity(registration())
    for group in range(GROUP_COUNT_MAX + 1):
        parity.observe(stored(kv_group=group, parent=1), 0)
    assert parity.failure.startswith("kv_groups: more than")


def test_a_worker_that_was_honest_at_first_is_checked_now_and_then() -> None:
    parity = Parity(registration())
    for _ in range(CHECKED_FIRST):
        parity.observe(stored(), 0)
    for _ in range(200):
        parity.observe(stored(hashes=[5, 6]), 0)
    assert parity.failure.startswith("hash:")


def test_a_prompt_of_ours_is_recognised_also_when_its_blocks_come_one_by_one() -> None:
    for length in (4, 8):
        parity = Parity(registration())
        parity.expect([*TOKENS, 9])
        parity.observe(stored([11, 12, 13, 14]), 0)
        assert not parity.probe_seen
        parity.observe(stored(TOKENS[:length]), 0)
        assert parity.probe_seen
