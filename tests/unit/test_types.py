"""The Python enums are the native ones, and every reason is explained."""

import re
from enum import IntEnum
from pathlib import Path

import pytest

from moonpool.types import (
    KEY_BYTES_MAX,
    REASON_TEXTS,
    GroupRule,
    Match,
    PutResult,
    ReadResult,
    Reason,
    Status,
    Tier,
)

HEADER = Path(__file__).parents[2] / "native" / "core" / "types.hpp"


def enum_of_header(name: str) -> dict[str, int]:
    body = re.search(rf"enum class {name} [^{{]*\{{(.*?)\}};", HEADER.read_text(), re.DOTALL)
    assert body is not None, name
    without_comments = re.sub(r"//[^\n]*", "", body.group(1))
    return {label: int(number) for label, number in re.findall(r"(\w+)\s*=\s*(\d+)", without_comments)}


@pytest.mark.parametrize("kind", [Status, Reason, Tier])
def test_enum_has_the_names_and_numbers_of_the_native_header(kind: type[IntEnum]) -> None:
    ours = {member.name.lower(): int(member) for member in kind}
    assert ours == enum_of_header(kind.__name__)


def test_key_limit_is_that_of_the_native_header() -> None:
    assert f"key_bytes_max = {KEY_BYTES_MAX};" in HEADER.read_text()


def test_every_reason_says_what_it_means_and_faults_say_what_to_do() -> None:
    assert set(REASON_TEXTS) == set(Reason)
    without_advice = {Reason.NONE, Reason.REMOVED, Reason.CLEARED}
    for reason in Reason:
        assert reason.meaning
        assert bool(reason.advice) != (reason in without_advice), reason


def test_result_is_true_exactly_when_it_worked() -> None:
    assert {status for status in Status if PutResult(status)} == {Status.STORED, Status.PRESENT}
    assert {status for status in Status if ReadResult(status)} == {Status.HIT, Status.DONE}
    assert not Match()
    assert Match(fetchable_block_count=1)


def test_group_rule_is_the_tuple_that_the_native_match_takes() -> None:
    assert tuple(GroupRule(kv_group=1, shard_count=2, window_block_count=4)) == (1, 2, 4)


def test_tier_mask_names_its_tiers() -> None:
    assert Tier(6).labels == ["dram", "disk"]
