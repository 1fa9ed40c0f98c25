"""Results that are made when somebody looks into them, and the native checks of whole batches."""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool import _native
from moonpool.pool.regions import require_disjoint
from moonpool.pool.results import Results
from moonpool.types import ReadResult, Reason, Status

HIT, MISS = ReadResult(Status.HIT, length=3), ReadResult(Status.MISS, Reason.NEVER_STORED)


class Outcome:
    """What the native client would give: two keys, one of them found."""

    worked_count = 1

    def __len__(self) -> int:
        return 2


@pytest.fixture
def made() -> list[Outcome]:
    """One item each time that results were made."""
    return []


@pytest.fixture
def results(made: list[Outcome]) -> Results[ReadResult]:
    def make(outcome: Outcome) -> list[ReadResult]:
        made.append(outcome)
        return [HIT, MISS]

    return Results(Outcome(), make)


def test_counts_are_known_before_any_result_is_made(results: Results[ReadResult], made: list[Outcome]) -> None:
    assert len(results) == 2
    assert results.worked_count == 1
    assert not made


def test_they_are_made_once_and_read_like_a_list(results: Results[ReadResult], made: list[Outcome]) -> None:
    assert list(results) == [HIT, MISS]
    assert results == [HIT, MISS]
    assert results[1:] == [MISS]
    assert results[-1] is MISS
    assert repr(results) == repr([HIT, MISS])
    assert len(made) == 1


def test_a_result_can_be_replaced_and_is_counted(results: Results[ReadResult]) -> None:
    results[1] = HIT
    assert results.worked_count == 2
    assert results == [HIT, HIT]


@pytest.mark.parametrize("keys", [[b""], [b"k" * 5], ["k"], [b"k", bytearray(b"k")], [None]])
def test_a_key_that_is_not_plain_is_not_taken_for_one(keys: list[object]) -> None:
    assert not _native.are_plain_keys(keys, 4)


def test_plain_keys_have_one_byte_to_the_most() -> None:
    assert _native.are_plain_keys([b"k", b"kkkk"], 4)
    assert _native.are_plain_keys([], 4)


NUMBER = st.integers(0, 2**64 - 1) | st.integers(0, 40)
RANGES = st.lists(st.tuples(NUMBER, NUMBER), max_size=8)


@given(RANGES, NUMBER, NUMBER)
def test_ranges_lie_within_another_as_in_the_model(ranges: list[tuple[int, int]], start: int, last: int) -> None:
    wanted = all(length > 0 and start <= address and address + length - 1 <= last for address, length in ranges)
    columns = [array("Q", column) for column in zip(*ranges, strict=True)] or [array("Q"), array("Q")]
    assert _native.lie_within(*columns, start, last) == wanted


@given(RANGES)
def test_what_ascends_apart_has_no_overlap(ranges: list[tuple[int, int]]) -> None:
    columns = [array("Q", column) for column in zip(*ranges, strict=True)] or [array("Q"), array("Q")]
    ascending = all(before + length <= after for (before, length), (after, _) in itertools.pairwise(ranges))
    assert _native.ascend_apart(*columns) == ascending
    if ascending:
        require_disjoint(*columns)
