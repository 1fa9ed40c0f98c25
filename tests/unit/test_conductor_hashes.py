"""Block hashes against recorded ones; tests/engine holds them to the installed vLLM."""

from __future__ import annotations

import pytest

from moonpool.conductor import cbor
from moonpool.conductor.hashes import Extras, HashRules, block_hashes, hint_of, hints, root_hash
from moonpool.errors import UsageError
from moonpool.identity import Media

TOKENS = [(index * 7919 + 13) % 50_000 for index in range(40)]
# By SGLang 0.5.23's own native function and kv_events.py, on 2026-12-01: pages of 8 of the tokens above.
SGLANG = {
    "plain": "768a31c448c80d9b 39b82a4e8f88ba79 7837458b8d9a02e5 ac402212dea8dd26 75cc603093c80f44",
    "bigram": "83026928fb9aafd8 70d8291db6154723 2205f91c441f8d62 bbc12d6f1b3902e8",
    "salted": "8c54dfcef33decc2 8d785c1690708967 3d0ce6cd983b6951 4c6e569e6520c5b7 2b61988d6288b2e4",
}
SGLANG_BIGRAM_LAST = "be6108f459e23125"
SGLANG_NAMESPACED = [
    4561039440047850061, -8638171794924967193, -3133329245266313290, -6842820561702247392, -1403377586303761585,
]  # fmt: skip


def rules(**fields: object) -> HashRules:
    return HashRules(**{"algorithm": "sha256_cbor", "seed": "0", "block_size_tokens": 4, **fields})  # type: ignore[arg-type]


def test_the_vector_of_mooncake_s_conductor_is_met() -> None:
    """Seed "0", tokens 1 to 4 in a block of 4, pickled: its tests/fixtures/hash_golden_vectors_sha256.json."""
    assert root_hash("sha256", "0").hex().startswith("1973e238")
    found = block_hashes(rules(algorithm="sha256"), [1, 2, 3, 4])
    assert found[0].hex().startswith("762b2e7e")
    assert hints(rules(algorithm="sha256"), found).tolist() == [0x8FCE057E23BAE91D]


def test_recorded_hashes_of_vllm_are_met() -> None:
    """By the functions of vLLM 0.32.0, on 2026-12-01."""
    assert root_hash("sha256_cbor", "0").hex().startswith("4e1195df")
    first = "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"
    assert block_hashes(rules(), [1, 2, 3, 4])[0].hex() == first


@pytest.mark.parametrize(
    ("case", "fields", "extras"),
    [
        ("plain", {"strategy": "sglang"}, Extras()),
        ("bigram", {"strategy": "sglang_bigram"}, Extras()),
        ("salted", {"strategy": "sglang"}, Extras(cache_salt="tenant 7")),
    ],
)
def test_recorded_hashes_of_sglang_are_met(case: str, fields: dict[str, str], extras: Extras) -> None:
    chosen = rules(block_size_tokens=8, **fields)
    found = [f"{hint:016x}" for hint in hints(chosen, block_hashes(chosen, TOKENS, extras))]
    assert found == SGLANG[case].split(), "a last page that is not full has no hash"


def test_sglang_s_namespaced_hashes_are_met() -> None:
    chosen = rules(strategy="sglang", block_size_tokens=8, namespaced=True)
    found = hints(chosen, block_hashes(chosen, TOKENS, Extras(cache_salt="tenant 7")))
    assert found.tolist() == [hint_of(number, strategy="sglang") for number in SGLANG_NAMESPACED]
    plain = hints(chosen, block_hashes(chosen, TOKENS))
    assert [f"{hint:016x}" for hint in plain] == SGLANG["plain"].split(), "without a salt nothing changes"


def test_what_sglang_hashes_by_numbers_of_its_own_is_refused() -> None:
    with pytest.raises(UsageError, match="numbers of its own"):
        block_hashes(rules(strategy="sglang"), [1, 2, 3, 4], Extras(lora_name="sql"))


def test_each_thing_that_a_hash_covers_changes_it() -> None:
    tokens = list(range(8))
    media = (Media("image", 5, 2),)
    cases = {
        "plain": (rules(), Extras()),
        "seed": (rules(seed="1"), Extras()),
        "algorithm": (rules(algorithm="sha256"), Extras()),
        "salt": (rules(), Extras(cache_salt="s")),
        "adapter": (rules(), Extras(lora_name="a", lora_path="p")),
        "path": (rules(), Extras(lora_name="a", lora_path="q")),
        "names only": (rules(extra_keys="tagged_names"), Extras(lora_name="a", lora_path="q")),
        "untagged": (rules(extra_keys="untagged"), Extras(lora_name="a", lora_path="q")),
        "medium": (rules(), Extras(media=media)),
        "embeddings": (rules(), Extras(embedding_digests=(b"1" * 32, b"2" * 32))),
    }
    found = {name: block_hashes(chosen, tokens, extras) for name, (chosen, extras) in cases.items()}
    assert len({hashes[1] for hashes in found.values()}) == len(cases)
    assert found["medium"][0] == found["plain"][0], "the medium begins in the second block"


def test_a_root_that_the_engine_told_stands_for_its_seed() -> None:
    told = rules(seed=None, root=root_hash("sha256_cbor", "0").hex())
    assert block_hashes(told, [1, 2, 3, 4]) == block_hashes(rules(), [1, 2, 3, 4])
    with pytest.raises(UsageError, match="seed"):
        block_hashes(rules(seed=None), [1, 2, 3, 4])


@pytest.mark.parametrize("wrong", [[-1, 0, 0, 0], [0, 0, 0, 2**32]])
def test_tokens_out_of_range_are_refused(wrong: list[int]) -> None:
    for strategy in ("vllm", "sglang"):
        with pytest.raises(UsageError, match="32-bit"):
            block_hashes(rules(strategy=strategy), wrong)


def test_wrong_rules_are_refused() -> None:
    for wrong in ({"block_size_tokens": 0}, {"algorithm": "md5"}, {"root": "xyz"}, {"root": "00"}):
        with pytest.raises(UsageError):
            rules(**wrong)


def test_a_hint_is_never_zero() -> None:
    assert hint_of(0) == hint_of(bytes(32)) == 1
    assert hints(rules(), [bytes(32), bytes(31) + b"\x02"]).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"), (23, "17"), (24, "1818"), (255, "18ff"), (256, "190100"), (2**16, "1a00010000"),
        (2**32, "1b0000000100000000"), (-1, "20"), (-25, "3818"), ("ü", "62c3bc"), (b"ab", "426162"), (None, "f6"),
        (("mm", "a", -3), "83626d6d616122"), ((), "80"),
    ],
)  # fmt: skip
def test_cbor_is_canonical(value: cbor.Value, expected: str) -> None:
    """RFC 8949, appendix A and section 4.2.1."""
    assert cbor.encode(value).hex() == expected
