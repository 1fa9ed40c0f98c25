"""When to leave a silent peer alone. Pure: takes now_ms."""

from __future__ import annotations

REST_MS_MIN = 50
REST_MS_MAX = 1_000


class Breaker:
    """After a failure the peer rests for a while that doubles with each further one, from 50 ms to 1 s."""

    def __init__(self) -> None:
        self._rest_ms = 0
        self._rests_until_ms = 0

    def allows(self, now_ms: int) -> bool:
        """Whether the peer may be asked now."""
        return now_ms >= self._rests_until_ms

    def failed(self, now_ms: int) -> None:
        """The peer did not answer in time."""
        self._rest_ms = min(max(REST_MS_MIN, 2 * self._rest_ms), REST_MS_MAX)
        self._rests_until_ms = now_ms + self._rest_ms

    def succeeded(self) -> None:
        """The peer answered: the next failure begins with the shortest rest."""
        self._rest_ms = 0
        self._rests_until_ms = 0
