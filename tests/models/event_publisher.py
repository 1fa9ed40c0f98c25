"""A publisher of KV events and the network behind it, as plain lists: what may be lost, late or repeated is drawn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One message of one incarnation; its payload says all."""

    incarnation: int
    number: int
    verb: str  # stored, removed or cleared
    block: int = 0

    @property
    def payload(self) -> bytes:
        return msgspec.msgpack.encode(self)


@dataclass
class Publisher:
    """Holds blocks, remembers what it held after each message, keeps the last messages for replay."""

    buffer_count: int
    incarnation: int = 0
    number: int = 0
    held: set[int] = field(default_factory=set)
    held_after: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    buffer: deque[Message] = field(init=False)

    def __post_init__(self) -> None:
        self.buffer = deque(maxlen=self.buffer_count)

    def publish(self, verb: str, block: int) -> Message:
        message = Message(self.incarnation, self.number, verb, block)
        self.number += 1
        apply(self.held, message)
        self.held_after[message.incarnation, message.number] = frozenset(self.held)
        self.buffer.append(message)
        return message

    def restart(self) -> None:
        self.incarnation += 1
        self.number = 0
        self.held = set()
        self.buffer.clear()

    def replay(self, start: int) -> list[Message]:
        return [message for message in self.buffer if message.number >= start]


def apply(held: set[int], message: Message) -> None:
    """What a message does to a set of blocks."""
    if message.verb == "stored":
        held.add(message.block)
    elif message.verb == "removed":
        held.discard(message.block)
    else:
        held.clear()
