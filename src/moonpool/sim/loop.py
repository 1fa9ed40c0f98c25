"""The event loop: virtual time, and what happens when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], None]


class EventLoop:
    """Runs actions in order of virtual time; actions of the same time run in the order they were asked for.

    That second rule is what makes a simulation repeatable: nothing depends on hashes, addresses or the wall clock.
    Actions cannot be taken back. Whoever may change its mind passes a version as the argument and ignores old ones.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.event_count = 0
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._order = 0

    def at(self, time_seconds: float, action: Action, argument: object = None) -> None:
        """Run `action(argument)` at that time, or now if that time has passed."""
        self._order += 1
        if time_seconds < self.now:
            time_seconds = self.now
        heapq.heappush(self._heap, (time_seconds, self._order, action, argument))

    def run(self, until_seconds: float = float("inf")) -> None:
        """Run until nothing is left to do, or until that time."""
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= until_seconds:
            self.now, _, action, argument = pop(heap)
            self.event_count += 1
            action(argument)
