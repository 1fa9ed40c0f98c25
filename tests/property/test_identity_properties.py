"""Canonical spelling and chained hashes, against what must hold for all inputs."""

import os
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import UsageError
from moonpool.identity import Media, block_hash_hint, block_hashes, block_key, canonical_bytes, media_id
from moonpool.identity.canonical import flatten, normalise

IMAGE_COUNT = 1_000_000

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        order.shuffle(names)
        return {name: shuffled(value[name], order) for name in names}
    return [shuffled(each, order) for each in value] if isinstance(value, list) else value


@given(documents, st.randoms(use_true_random=False))
def test_order_of_entries_does_not_count(document: Any, order: random.Random) -> None:
    assert canonical_bytes(document) == canonical_bytes(shuffled(document, order))


@given(documents, documents)
def test_spelling_is_equal_exactly_when_the_normalised_values_are(one: Any, two: Any) -> None:
    same = repr(ordered(normalise(one))) == repr(ordered(normalise(two)))
    assert (canonical_bytes(one) == canonical_bytes(two)) == same


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, ordered(value[name])) for name in sorted(value)]
    return tuple(ordered(each) for each in value) if isinstance(value, list) else value


@given(documents)
def test_normalising_twice_changes_nothing(document: Any) -> None:
    once = normalise(document)
    assert repr(normalise(once)) == repr(once)
    assert flatten(once) == flatten(document)


tokens = st.lists(st.integers(0, 2**32 - 1), max_size=80)


@given(tokens, tokens, st.integers(1, 9))
def test_hashes_agree_exactly_as_far_as_the_prompts_do(one: list[int], two: list[int], size: int) -> None:
    first, second = (block_hashes(each, block_size_tokens=size) for each in (one, two))
    assert (len(first), len(second)) == (len(one) // size, len(two) // size)
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        end = (index + 1) * size
        assert (left == right) == (one[:end] == two[:end])


@given(tokens, st.integers(1, 9))
def test_extra_that_is_nothing_changes_nothing_and_a_salt_changes_all(prompt: list[int], size: int) -> None:
    plain = block_hashes(prompt, block_size_tokens=size)
    for nothing in (None, {}, {"salt": None}):
        assert block_hashes(prompt, block_size_tokens=size, extra=nothing) == plain
    salted = block_hashes(prompt, block_size_tokens=size, extra={"salt": "s"})
    assert not set(plain) & set(salted)


@given(st.integers(0, 63), st.integers(1, 16))
def test_medium_changes_the_blocks_from_its_first_token_on(offset: int, count: int) -> None:
    prompt = [0] * 64
    plain, one, two = (
        block_hashes(prompt, block_size_tokens=8, media=media)
        for media in ((), [Media("a", offset, count)], [Media("b", offset, count)])
    )
    first = offset // 8
    assert plain[:first] == one[:first] == two[:first]
    assert not set(plain[first:]) & set(one[first:])
    assert not set(one[first:]) & set(two[first:])


@pytest.mark.parametrize(("prompt", "size"), [([1], 0), ([-1], 1), ([2**32], 1)])
def test_prompt_that_is_none_is_refused(prompt: list[int], size: int) -> None:
    with pytest.raises(UsageError):
        block_hashes(prompt, block_size_tokens=size)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_random_images_have_a_million_keys_and_hints() -> None:
    seed = int.from_bytes(os.urandom(8), "little")
    pixels = random.Random(seed)
    prompt = [7] * 4
    keys, hints = set(), set()
    for _ in range(IMAGE_COUNT):
        image = media_id(pixels.randbytes(16))
        (block,) = block_hashes(prompt, block_size_tokens=4, media=[Media(image, 0, 4)])
        keys.add(block_key(1, block))
        hints.add(block_hash_hint(block))
    assert len(keys) == IMAGE_COUNT, f"seed {seed}"
    assert len(hints) == IMAGE_COUNT, f"seed {seed}"
