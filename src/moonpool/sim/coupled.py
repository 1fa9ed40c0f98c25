"""An engine that prefills and decodes on the same GPUs, as vLLM does without P/D: the papers' baseline."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from math import ceil

from moonpool.sim.batch import ContinuousBatch, Member, StepSeconds
from moonpool.sim.decode import BatchLimits, Finished
from moonpool.sim.loop import EventLoop


class Prompt:
    """One prompt on a coupled engine: what computing it costs, and how many of its tokens must be computed."""

    __slots__ = ("computed_tokens", "index", "intervals", "seconds", "tokens")

    def __init__(self, index: int, *, tokens: int, computed_tokens: int, seconds: float, intervals: int) -> None:
        self.index = index
        self.tokens = tokens
        self.computed_tokens = computed_tokens
        self.seconds = seconds
        self.intervals = intervals


class Mixing(enum.Enum):
    """How prompts share the GPUs with decoding: first (vLLM 0.5.1's default), or in chunks beside it."""

    PREFILL_FIRST = "prefill first"
    CHUNKED = "chunked"


class CoupledEngine:
    """Prompts are taken in order of arrival, between decode steps.

    *Prefill first*: while a prompt waits and its KV fits, prompts are computed and nobody decodes; every member of the
    batch waits that much longer for its next token. *Chunked*: each step computes up to `chunk_tokens` of the first
    prompt beside the decoding, and takes as much longer (no synergy between the two is assumed).
    """

    def __init__(
        self,
        loop: EventLoop,
        *,
        step_seconds: StepSeconds,
        limits: BatchLimits,
        prefilled: Callable[[Prompt], None],
        finished: Finished,
    ) -> None:
        self._loop = loop
        self._batch = ContinuousBatch(step_seconds)
        self._limits = limits
        self._prefilled = prefilled
        self._finished = finished
        self._waiting: deque[Prompt] = deque()
        self._running: Prompt | None = None
        self._chunks_left = 0
        self._stall = 0.0
        self._version = 0
        self._boundary = 0
        self.mixing = Mixing.PREFILL_FIRST
        self.chunk_tokens = 2048

    @property
    def batch_size(self) -> int:
        """Requests that decode now."""
        return len(self._batch)

    @property
    def queue_length(self) -> int:
        """Prompts given to it and not computed, the running one included."""
        return len(self._waiting) + (self._running is not None)

    @property
    def kv_tokens(self) -> int:
        """KV held by the batch at its last change."""
        return self._batch.kv_tokens

    def submit(self, prompt: Prompt) -> None:
        """A prompt was given to this engine."""
        self._waiting.append(prompt)
        if self._running is not None:
            return
        if not self._boundary:
            self._go_on()
        elif self._has_room():
            boundary = self._batch.next_boundary(self._loop.now)
            if boundary < self._boundary:
                self._schedule(boundary)

    def lose_all(self) -> tuple[list[Prompt], list[Member]]:
        """The engine has died. Returns the prompts that it had not computed, and whom it decoded."""
        prompts = ([self._running] if self._running else []) + list(self._waiting)
        self._waiting.clear()
        self._running = None
        self._chunks_left = self._boundary = 0
        self._stall = 0.0
        self._version += 1
        return prompts, self._batch.clear()

    def _has_room(self) -> bool:
        limits = self._limits
        return len(self._batch) < limits.requests and (
            self._batch.kv_tokens + self._waiting[0].tokens <= limits.kv_tokens or not len(self._batch)
        )

    def _go_on(self) -> None:
        """Between two steps: take a prompt if one may come in, then run the batch."""
        if self._running is None and self._waiting and self._has_room():
            self._running = self._waiting.popleft()
            if self.mixing is Mixing.PREFILL_FIRST:
                self._version += 1
                self._loop.at(self._loop.now + self._running.seconds, self._on_prefill_end, self._version)
                return
            self._chunks_left = max(1, ceil(self._running.computed_tokens / self.chunk_tokens))
        self._run_batch()

    def _run_batch(self) -> None:
        boundary = self._batch.steps_to_next_leave if len(self._batch) else 0
        extra = 0.0
        if self._running is not None:
            extra = self._running.seconds / self._chunks_left if self._chunks_left else 0.0
            boundary = min(boundary, self._chunks_left) if boundary else self._chunks_left
        if boundary:
            self._batch.resume(self._loop.now, extra_seconds=extra, stall_seconds=self._stall)
            self._stall = 0.0
            self._schedule(boundary)

    def _schedule(self, boundary: int) -> None:
        self._boundary = boundary
        self._version += 1
        self._loop.at(self._batch.end_of_step(boundary), self._on_boundary, self._version)

    def _on_boundary(self, version: int) -> None:
        if version != self._version:
            return
        boundary, self._boundary = self._boundary, 0
        for member in self._batch.pause(boundary):
            self._finished(member, self._batch.worst_tenth_mean(member))
        if self._running is not None:
            self._running.seconds -= boundary * self._running.seconds / self._chunks_left
            self._chunks_left -= boundary
            if self._chunks_left == 0:
                self._end_prompt()
        self._go_on()

    def _on_prefill_end(self, version: int) -> None:
        if version != self._version or self._running is None:
            return
        if len(self._batch):
            self._stall += self._running.seconds
        self._end_prompt()
        self._go_on()

    def _end_prompt(self) -> None:
        prompt, self._running = self._running, None
        assert prompt is not None
        self._prefilled(prompt)
        member = Member(
            prompt.index, kv_tokens=prompt.tokens + 1, intervals=prompt.intervals, first_token_at=self._loop.now
        )
        if prompt.intervals:
            self._batch.join(member)
        else:
            self._finished(member, 0.0)
