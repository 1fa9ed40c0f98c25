"""A prefill engine: computes prompts one after the other, in the order in which they were given to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moonpool.sim.loop import EventLoop


class PrefillJob:
    """One prompt on one engine. `loads_left` counts fetches that must end before it can be computed."""

    __slots__ = ("index", "loads_left", "seconds")

    def __init__(self, index: int, *, seconds: float, loads_left: int = 0) -> None:
        self.index = index  # of the request, in the run
        self.seconds = seconds
        self.loads_left = loads_left


class PrefillEngine:
    """First in, first out. A fetch runs while its prompt waits; a prompt at the head waits for its own fetch.

    One prompt at a time keeps an engine of eight GPUs busy from about a thousand tokens on (FAST'25 §3.3).
    """

    def __init__(self, loop: EventLoop, *, finished: Callable[[PrefillJob], None]) -> None:
        self._loop = loop
        self._finished = finished
        self._queue: deque[PrefillJob] = deque()
        self._running: PrefillJob | None = None
        self._version = 0
        self.busy_seconds = 0.0

    @property
    def queue_length(self) -> int:
        """Prompts given to it and not finished, the running one included."""
        return len(self._queue) + (self._running is not None)

    def submit(self, job: PrefillJob) -> None:
        """Compute this prompt after those that are here."""
        self._queue.append(job)
        if self._running is None:
            self._start_next()

    def loaded(self, job: PrefillJob) -> None:
        """One of the job's fetches has ended."""
        job.loads_left -= 1
        if self._running is None and self._queue and self._queue[0] is job:
            self._start_next()

    def lose_all(self) -> list[PrefillJob]:
        """The engine has died. Returns what it had, the running one first."""
        lost = ([self._running] if self._running else []) + list(self._queue)
        self._queue.clear()
        self._running = None
        self._version += 1
        return lost

    def _start_next(self) -> None:
        if self._queue and self._queue[0].loads_left == 0:
            job = self._running = self._queue.popleft()
            self._loop.at(self._loop.now + job.seconds, self._on_end, self._version)

    def _on_end(self, version: int) -> None:
        job = self._running
        if version != self._version or job is None:
            return
        self._running = None
        self.busy_seconds += job.seconds
        self._finished(job)
        if self._running is None:
            self._start_next()
