"""The demo's workload: fixed, shared where it should be shared, and fair to both runs."""

from __future__ import annotations

import math

import pytest

from moonpool.testing.workload import Part, Transcript, demo_steps, fault_steps, percentile, system_prompt


def test_same_label_gives_the_same_guide() -> None:
    assert system_prompt("a") == system_prompt("a")


def test_another_label_differs_in_the_first_words() -> None:
    first, second = system_prompt("a"), system_prompt("b")
    shared = next(i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y)
    assert shared < 10, "no whole block may be shared"


def test_steps_are_the_same_in_every_run() -> None:
    assert demo_steps() == demo_steps()
    assert [step.number for step in demo_steps()] == list(range(1, len(demo_steps()) + 1))


def test_request_ids_are_distinct() -> None:
    steps = demo_steps(unique_count=20)
    assert len({step.request_id for step in steps}) == len(steps)


def test_the_prefix_goes_cold_to_a_then_a_then_b() -> None:
    first = demo_steps()[:3]
    assert [(step.engine, step.part) for step in first] == [("A", Part.COLD), ("A", Part.LOCAL), ("B", Part.ACROSS)]
    assert len({step.system for step in first}) == 1
    assert len({step.user for step in first}) == 3


def test_the_conversation_moves_between_engines() -> None:
    moving = [step for step in demo_steps() if step.part is Part.MOVING]
    assert [step.engine for step in moving] == ["A", "B", "A", "B"]
    assert len({step.conversation for step in moving}) == 1


def test_unique_prompts_share_nothing() -> None:
    unique = [step for step in demo_steps(unique_count=6) if step.part is Part.UNIQUE]
    assert len({step.system for step in unique}) == 6
    assert {step.engine for step in unique} == {"A", "B"}


def test_a_turn_sees_the_turns_before_it_and_no_others() -> None:
    transcript = Transcript()
    moving = [step for step in demo_steps() if step.part is Part.MOVING]
    transcript.add(moving[0], "one")
    transcript.add(moving[1], "two")
    assert [message["content"] for message in transcript.messages(moving[2])[1:]] == [
        moving[0].user, "one", moving[1].user, "two", moving[2].user,
    ]  # fmt: skip
    assert [message["content"] for message in transcript.messages(moving[1])[1:]] == [
        moving[0].user, "one", moving[1].user,
    ]  # fmt: skip
    assert len(transcript.messages(demo_steps()[0])) == 2


def test_fault_steps_of_one_label_ask_the_same_of_both_engines() -> None:
    before = fault_steps(Part.BEFORE_KILL, engine="A", first_number=50, count=3, label="x")
    after = fault_steps(Part.NODE_KILLED, engine="B", first_number=53, count=3, label="x")
    assert [(step.system, step.user) for step in before] == [(step.system, step.user) for step in after]
    assert len({step.system for step in before}) == 3


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([1.0], 0.99, 1), ([3, 1, 2, 4], 0.5, 2), ([1, 2, 3, 4], 0.99, 4), ([5, 4], 0, 4)]
)
def test_percentile_is_a_measured_value(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_percentile_of_nothing_is_nan() -> None:
    assert math.isnan(percentile([], 0.5))
