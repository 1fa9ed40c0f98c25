"""Messages of engines as they were recorded, and what is made of rubbish."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.conductor.events import Cleared, Removed, Stored, decode
from moonpool.errors import ProtocolError
from moonpool.types import Tier

# Encoded with the structs of SGLang 0.5.23 (disaggregation/kv_events.py) on 2026-12-01.
SGLANG = bytes.fromhex(
    "93cb41d954fc401000009589a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392fb07b1706172656e745f626c6f636b"
    "5f68617368c0a9746f6b656e5f696473980102030405060708aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055aa"
    "63616368655f73616c74a173aa73657373696f6e5f6964a17888a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739109"
    "b1706172656e745f626c6f636b5f6861736807a9746f6b656e5f69647394920102920203920304920405aa626c6f636b5f73697a6504a76c6f72"
    "615f6964c0a66d656469756daa4350555f50494e4e4544a96c6f72615f6e616d65a373716c83a474797065ac426c6f636b52656d6f766564ac62"
    "6c6f636b5f68617368657391fba66d656469756da44449534b83a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391"
    "07a66d656469756da845585445524e414c81a474797065b0416c6c426c6f636b73436c656172656401"
)
# As vLLM before 0.11 and llm-d's parser have them: arrays, what is not set at the end left out.
ARRAYS = bytes.fromhex(
    "92cb3ff80000000000009497ab426c6f636b53746f726564920b0cc0940102030402c0a347505593ac426c6f636b52656d6f766564910ba34350"
    "5591b0416c6c426c6f636b73436c656172656496ab426c6f636b53746f726564910d0c92050602c0"
)


def test_sglang_s_messages_are_understood() -> None:
    batch = decode(SGLANG, strategy="sglang")
    assert (batch.rank, batch.skipped) == (1, 0)
    first, second, *rest = batch.events
    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert (first.hashes, first.parent, first.tier) == ([2**64 - 5, 7], None, Tier.ENGINE)
    assert first.token_ids() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (second.hashes, second.parent, second.tier, second.lora_name) == ([9], 7, Tier.DRAM, "sql")
    assert second.token_ids() is None, "pairs of tokens"
    assert rest == [Removed([2**64 - 5], Tier.DISK), Removed([7], Tier.COLD), Cleared()]


def test_arrays_of_older_releases_are_understood() -> None:
    batch = decode(ARRAYS)
    assert (batch.rank, batch.skipped) == (None, 0)
    first, removed, cleared, second = batch.events
    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert (first.hashes, first.parent, first.block_size_tokens, first.tier) == ([11, 12], None, 2, Tier.ENGINE)
    assert (removed, cleared) == (Removed([11], Tier.DRAM), Cleared())
    assert (second.hashes, second.parent, second.tier) == ([13], 12, Tier.ENGINE), "no medium: the engine's own"


def test_the_messages_of_mooncake_s_master_are_understood() -> None:
    stored = {
        "event_id": 1, "timestamp": 5, "event_type": "stored", "type": "BlockStored", "model_name": None,
        "block_size": None, "medium": "cpu", "seq_hashes": [2**64 - 1], "block_hashes": [-1], "parent_hash": None,
        "token_ids": None, "parent_block_hash": None, "object_key": "0xffffffffffffffff", "dp_rank": None,
    }  # fmt: skip
    removed = {**stored, "event_type": "removed", "type": "BlockRemoved", "medium": "disk"}
    batch = decode(msgspec.msgpack.encode([1_700_000_000_000, [stored, removed], 0]))
    first, second = batch.events
    assert isinstance(first, Stored)
    assert (first.hashes, first.tier, first.token_ids()) == ([2**64 - 1], Tier.DRAM, None)
    assert second == Removed([2**64 - 1], Tier.DISK)


def test_what_lies_with_somebody_else_is_not_the_worker_s_own() -> None:
    event = {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU", "locality": "REMOTE"}
    assert decode(msgspec.msgpack.encode([0.0, [event]])).events == [Removed([1], Tier.COLD)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "BlockMoved", "block_hashes": [1]},
        {"type": "BlockStored"},
        {"type": "BlockStored", "block_hashes": ["x"]},
        {"type": "BlockStored", "block_hashes": [1], "medium": "moon"},
        {"type": "BlockRemoved", "block_hashes": [1], "group_idx": 65_536},
        {"type": "BlockRemoved", "block_hashes": [1], "group_idx": -1},
        {"block_hashes": [1]},
        ["BlockStored", [1]],
        ["BlockRemoved"],
        [],
        7,
        None,
    ],
)
def test_an_event_that_is_none_is_counted_and_the_others_count(event: object) -> None:
    batch = decode(msgspec.msgpack.encode([0.0, [event, {"type": "AllBlocksCleared"}], None]))
    assert (batch.events, batch.skipped) == ([Cleared()], 1)


@pytest.mark.parametrize(
    "wrong", [b"", b"\xc1", b"\x93", msgspec.msgpack.encode({"a": 1}), msgspec.msgpack.encode([1])]
)
def test_bytes_that_are_no_message_are_an_error(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(wrong)


@given(st.data())
def test_no_bytes_do_anything_else(data: st.DataObject) -> None:
    """Recorded messages with some bytes changed, cut or added."""
    payload = bytearray(data.draw(st.sampled_from([SGLANG, ARRAYS])))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for candidate in (bytes(payload), bytes(payload[:cut]), bytes(payload) + b"\x00"):
        try:
            batch = decode(candidate)
        except ProtocolError:
            continue
        for event in batch.events:
            if isinstance(event, Stored):
                event.token_ids()
                event.published_keys()
