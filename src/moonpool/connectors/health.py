"""Whether the node is worth a call: a small state machine that takes `now_ms`.

An engine's step must not pay for a dead or stopped node twice. After a few calls that got no answer in time the
node counts as away; nobody in a step asks it then. A thread outside of the steps probes it, seldom at first
failing, and its first answer opens the way again.
"""

from __future__ import annotations

import threading


class Health:
    """Away until a probe was answered; away again after ``failure_count_max`` failures in a row."""

    def __init__(self, *, failure_count_max: int, probe_ms_min: int = 50, probe_ms_max: int = 500) -> None:
        self._failure_count_max = failure_count_max
        self._probe_ms_min = probe_ms_min
        self._probe_ms_max = probe_ms_max
        self._probe_ms = probe_ms_min
        self._probe_at_ms = 0.0
        self._failure_count = 0
        self._up = False
        self._lock = threading.Lock()
        self.away_count = 0

    @property
    def up(self) -> bool:
        """Whether a call may be made inside a step."""
        return self._up

    def answered(self) -> None:
        """A call was answered, whatever the answer."""
        self._failure_count = 0

    def unanswered(self, now_ms: float) -> None:
        """A call got no answer in its time."""
        with self._lock:
            self._failure_count += 1
            if self._up and self._failure_count >= self._failure_count_max:
                self._go_away(now_ms)

    def lost(self, now_ms: float) -> None:
        """The connection is gone: no need to count."""
        with self._lock:
            if self._up:
                self._go_away(now_ms)

    def _go_away(self, now_ms: float) -> None:
        self._up = False
        self.away_count += 1
        self._probe_ms = self._probe_ms_min
        self._probe_at_ms = now_ms

    def probe_in_ms(self, now_ms: float) -> float | None:
        """How long until the next probe is due; None while the node is up."""
        if self._up:
            return None
        return max(0.0, self._probe_at_ms - now_ms)

    def probed(self, alive: bool, now_ms: float) -> None:
        """What a probe found."""
        with self._lock:
            if alive:
                self._up = True
                self._failure_count = 0
                self._probe_ms = self._probe_ms_min
                return
            self._probe_at_ms = now_ms + self._probe_ms
            self._probe_ms = min(self._probe_ms_max, self._probe_ms * 2)
