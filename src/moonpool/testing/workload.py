"""The chat workload of the demo and of the engine benchmarks: who is asked what, in which order.

A guide of a small hotel is the long system prompt that all conversations share (about 1,250 tokens of
SmolLM2's tokenizer). Everything is fixed by the label, so that two runs ask the same; another label changes the
first line, and with it every block of the prompt.
"""

from __future__ import annotations

import enum
import math
import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moonpool.testing.chat import Message

ROOM_COUNT = 35
UNIQUE_ROOM_COUNT = 11
FAULT_ROOM_COUNT = 20

QUESTIONS = (
    "Which room is the cheapest for two guests?",
    "At what time is breakfast served?",
    "May I bring my dog along?",
    "Is there a room with a balcony above the lake?",
    "How do I reach you from the railway station?",
    "What happens if I cancel two days before?",
)
CONVERSATION = (
    "We are two adults and arrive on Friday by train. Which room do you suggest?",
    "Good. What does it cost for two nights with breakfast?",
    "Can we store two bicycles?",
    "Please sum up what I should book.",
)
_VIEWS = ("the lake", "the garden", "the old town", "the hills", "the harbour", "the courtyard")
_BEDS = ("one double bed", "two single beds", "one double bed and a cot", "three single beds")
_EXTRAS = ("a balcony", "a writing desk", "a small kitchen", "a bathtub", "a fireplace", "no stairs")
_RULES = (
    "Breakfast is served from seven to ten, on Sundays until eleven.",
    "Dogs are welcome on the ground floor for nine euros a night.",
    "From the railway station take tram four to the harbour; the way on foot takes twelve minutes.",
    "Cancelling is free until three days before arrival; later the first night is charged.",
    "Bicycles are stored in the locked shed behind the garden.",
)


class Part(enum.StrEnum):
    """Which part of the workload a step belongs to."""

    COLD = "cold"
    LOCAL = "same prefix, same engine"
    ACROSS = "same prefix, other engine"
    MOVING = "conversation that moves"
    UNIQUE = "unique"
    BEFORE_KILL = "stored before the kill"
    NODE_KILLED = "node killed while loading"
    AFTER_BACK = "stored after the restart"
    NODE_BACK = "node back"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request: `user` is asked of `engine`, after the earlier turns of `conversation`."""

    number: int
    engine: str
    part: Part
    conversation: str
    system: str
    user: str
    token_count_max: int = 24

    @property
    def request_id(self) -> str:
        """Goes with the request, so that the connector's report can be found by it."""
        return f"demo-{self.number:03d}"


def system_prompt(label: str, *, room_count: int = ROOM_COUNT) -> str:
    """The guide. The label stands first, so that guides of different labels share no block."""
    dice = random.Random(f"moonpool {label}")
    lines = [
        f"Guide {label}. You answer guests of the Lantern Hotel. Be brief and friendly. Use only what is written here."
    ]
    lines.extend(
        f"Room {100 + number}: {dice.choice(_BEDS)}, view of {dice.choice(_VIEWS)}, {dice.choice(_EXTRAS)}, "
        f"{dice.randrange(55, 190)} euros a night for {dice.randrange(1, 5)} guests."
        for number in range(1, room_count + 1)
    )
    lines.extend(_RULES)
    return "\n".join(lines)


def demo_steps(*, unique_count: int = 8, label: str = "lantern", token_count_max: int = 24) -> list[Step]:
    """Cold to A, again to A, the same prefix to B, a conversation that moves between A and B, then unique prompts."""
    shared = system_prompt(label)
    plan: list[tuple[str, Part, str, str, str]] = [
        ("A", Part.COLD, "first", shared, QUESTIONS[0]),
        ("A", Part.LOCAL, "second", shared, QUESTIONS[1]),
        ("B", Part.ACROSS, "third", shared, QUESTIONS[2]),
        ("B", Part.LOCAL, "fourth", shared, QUESTIONS[3]),
    ]
    moving = system_prompt(f"{label} by the sea")
    for turn, text in enumerate(CONVERSATION):
        plan.append(("AB"[turn % 2], Part.MOVING, "moving", moving, text))
    for number in range(unique_count):
        short = system_prompt(f"{label} annex {number}", room_count=UNIQUE_ROOM_COUNT)
        plan.append(("AB"[number % 2], Part.UNIQUE, f"unique {number}", short, QUESTIONS[number % len(QUESTIONS)]))
    return [
        Step(
            number=number,
            engine=engine,
            part=part,
            conversation=conversation,
            system=system,
            user=user,
            token_count_max=token_count_max,
        )
        for number, (engine, part, conversation, system, user) in enumerate(plan, start=1)
    ]


def fault_steps(part: Part, *, engine: str, first_number: int, count: int, label: str) -> list[Step]:
    """`count` requests with prefixes of their own, the same for the same label whatever the part and the engine."""
    return [
        Step(
            number=first_number + index,
            engine=engine,
            part=part,
            conversation=f"{label} {part} {index}",
            system=system_prompt(f"{label} {index}", room_count=FAULT_ROOM_COUNT),
            user=QUESTIONS[index % len(QUESTIONS)],
            token_count_max=16,
        )
        for index in range(count)
    ]


class Transcript:
    """The turns said so far, by conversation. Answers are taken from one run and given to the other as they were,
    so that both runs ask exactly the same.
    """

    def __init__(self) -> None:
        self._turns: dict[str, list[tuple[int, str, str]]] = {}

    def messages(self, step: Step) -> tuple[Message, ...]:
        """System prompt, the earlier turns of the step's conversation, its question."""
        messages: list[Message] = [{"role": "system", "content": step.system}]
        for number, user, assistant in self._turns.get(step.conversation, ()):
            if number < step.number:
                messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        messages.append({"role": "user", "content": step.user})
        return tuple(messages)

    def add(self, step: Step, answer_text: str) -> None:
        """Remembers the answer to a step."""
        self._turns.setdefault(step.conversation, []).append((step.number, step.user, answer_text))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed; nan for none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    index = min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1
    return ordered[index]
