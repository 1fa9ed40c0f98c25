"""A decode engine: takes requests whose KV has arrived, and decodes them in one continuous batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from moonpool.sim.batch import ContinuousBatch, Member, StepSeconds
from moonpool.sim.loop import EventLoop

Finished = Callable[[Member, float], None]  # (who, mean of its worst tenth of token intervals in seconds)


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """What one engine can hold at once. The default: 8 x A800-80GB with LLaMA3-70B in 16 bits (436 GB left for KV)."""

    requests: int = 256
    kv_tokens: int = 1_330_000


class DecodeEngine:
    """Admits in order of arrival, between steps, while batch and KV memory have room.

    KV memory is checked against what is held when a request comes in; what a batch grows to later is not limited
    (real engines preempt then: a rare event at the loads of the papers, which we leave out).
    """

    def __init__(self, loop: EventLoop, *, step_seconds: StepSeconds, limits: BatchLimits, finished: Finished) -> None:
        self._loop = loop
        self._batch = ContinuousBatch(step_seconds)
        self._limits = limits
        self._finished = finished
        self._waiting: deque[Member] = deque()
        self._version = 0
        self._boundary = 0  # the step of the running segment at which it ends; 0: none runs

    @property
    def batch_size(self) -> int:
        """Requests that decode now."""
        return len(self._batch)

    @property
    def waiting_count(self) -> int:
        """Requests that have arrived and wait for a step boundary or for room."""
        return len(self._waiting)

    @property
    def kv_tokens(self) -> int:
        """KV held by the batch at its last change."""
        return self._batch.kv_tokens

    def submit(self, member: Member) -> None:
        """A request whose KV is here."""
        self._waiting.append(member)
        if not self._boundary:
            if len(self._waiting) == 1:  # wait for others of this very moment
                self._version += 1
                self._loop.at(self._loop.now, self._on_wake, self._version)
        elif self._has_room():
            boundary = self._batch.next_boundary(self._loop.now)
            if boundary < self._boundary:
                self._schedule(boundary)

    def lose_all(self) -> list[Member]:
        """The engine has died. Returns whom it had, batch first."""
        lost = self._batch.clear() + list(self._waiting)
        self._waiting.clear()
        self._version += 1
        self._boundary = 0
        return lost

    def _has_room(self) -> bool:
        limits = self._limits
        return len(self._batch) < limits.requests and (
            self._batch.kv_tokens + self._waiting[0].kv_tokens <= limits.kv_tokens or not len(self._batch)
        )

    def _schedule(self, boundary: int) -> None:
        self._boundary = boundary
        self._version += 1
        self._loop.at(self._batch.end_of_step(boundary), self._on_boundary, self._version)

    def _on_wake(self, version: int) -> None:
        if version == self._version:
            self._start_segment()

    def _on_boundary(self, version: int) -> None:
        if version != self._version:
            return
        boundary, self._boundary = self._boundary, 0
        for member in self._batch.pause(boundary):
            self._finished(member, self._batch.worst_tenth_mean(member))
        self._start_segment()

    def _start_segment(self) -> None:
        while self._waiting and self._has_room():
            self._batch.join(self._waiting.popleft())
        if len(self._batch):
            self._batch.resume(self._loop.now)
            self._schedule(self._batch.steps_to_next_leave)
