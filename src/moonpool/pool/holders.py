"""Other nodes that have what the own node has not: found by a hint or a directory, read from, remembered when bad.

Every wait is bounded by the caller's deadline, every table by a limit. A peer that does not answer is left alone for a
growing while; a holder that did not have what was said of it is not asked for that key again for a while.
"""

from __future__ import annotations

import collections
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, MutableSequence, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from moonpool import _native
from moonpool.config import UNIX_PREFIX
from moonpool.types import Hint, ReadResult, Reason

# What another node may still have. Anything else is the caller's own mistake, or says that time is over.
ELSEWHERE = frozenset(
    {
        Reason.NEVER_STORED,
        Reason.EVICTED,
        Reason.EXPIRED,
        Reason.REMOVED,
        Reason.DAMAGED,
        Reason.INCOMPLETE_BUNDLE,
        Reason.NOT_COMMITTED,
        Reason.NO_PARENT,
        Reason.CLEARED,
        Reason.WARMING,
        Reason.DEADLINE,
        Reason.UNAVAILABLE,
        Reason.TIMED_OUT,
        Reason.WRONG_INCARNATION,
        Reason.CONNECTION_LIMIT,
    }
)
_AWAY = frozenset({Reason.UNAVAILABLE, Reason.TIMED_OUT, Reason.WRONG_INCARNATION, Reason.PROTOCOL})


class Place(NamedTuple):
    """A node that is believed to hold something."""

    address: str
    incarnation: int


Read = Callable[[_native.NodeClient, Sequence[int], int], Sequence[ReadResult]]
Locate = Callable[[Sequence[int], int], Sequence[Iterable[Place]] | None]


class Wanted(NamedTuple):
    """What a batch wants, and how it is had.

    ``read(client, positions, timeout_ms)`` reads those of the batch from that node; ``locate(positions, timeout_ms)``
    asks a directory; a hint, one a key or None, names a holder beforehand.
    """

    keys: Sequence[Hashable]
    read: Read
    locate: Locate
    hints: Sequence[Hint | None] | None = None


class HolderLimits(NamedTuple):
    """How many nodes are known and asked, and how long is remembered what went wrong."""

    client_count: int = 32
    tries: int = 3  # holders asked for one key
    suspect_count: int = 4_096
    suspect_ms: int = 5_000
    pause_ms_min: int = 250
    pause_ms_max: int = 10_000


class _Known(msgspec.Struct):
    """A node that was asked before."""

    client: _native.NodeClient
    pause_ms: int = 0
    paused_until_ms: int = 0


class Holders:
    """The other nodes. Usable from several threads; a forked child makes one of its own."""

    def __init__(
        self,
        make_client: Callable[[str], _native.NodeClient],
        *,
        limits: HolderLimits | None = None,
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._make_client = make_client
        self._limits = limits or HolderLimits()
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._known: collections.OrderedDict[str, _Known] = collections.OrderedDict()
        self._suspects: collections.OrderedDict[tuple[Hashable, int], int] = collections.OrderedDict()
        self.counts: collections.Counter[str] = collections.Counter()

    def fill(
        self, results: MutableSequence[ReadResult], wanted: Wanted, *, own_incarnation: int, deadline_ms: int
    ) -> None:
        """Replace what was missed by what another holder gave, in place. A directory is asked once, for what no hint
        found.
        """
        search = _Search(self, results, wanted.keys)
        search.own_incarnation = own_incarnation
        if wanted.hints is not None:
            search.add(
                {
                    position: [Place(hint.address, hint.incarnation)]
                    for position in search.missing()
                    if (hint := wanted.hints[position]) is not None
                }
            )
            self._read_places(search, wanted.read, deadline_ms)
        missing = search.missing()
        left_ms = deadline_ms - self._clock_ms()
        if not missing or left_ms <= 0:
            return
        found = wanted.locate(missing, max(1, left_ms // 2))
        if found is None:
            return
        search.add({position: _shuffled(places) for position, places in zip(missing, found, strict=True)})
        self._read_places(search, wanted.read, deadline_ms)

    def status(self) -> list[dict[str, Any]]:
        """Each node that was asked: address, connected, paused, transport, rails."""
        with self._lock:
            known = list(self._known.items())
        now_ms = self._clock_ms()
        return [
            {
                "address": address,
                "connected": one.client.connected,
                "paused": one.paused_until_ms > now_ms,
                **{name: one.client.info[name] for name in ("node", "incarnation", "transport", "rails")},
            }
            for address, one in known
        ]

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            known, self._known = list(self._known.values()), collections.OrderedDict()
        for one in known:
            one.client.close()

    # What `_Search` asks ------------------------------------------------------------------------------------

    def is_suspect(self, key: Hashable, place: Place) -> bool:
        """Whether this holder did not have the key a moment ago."""
        with self._lock:
            until_ms = self._suspects.get((key, place.incarnation), 0)
        return until_ms > self._clock_ms()

    def suspect(self, key: Hashable, place: Place) -> None:
        """Remember that it did not have it."""
        with self._lock:
            self._suspects[key, place.incarnation] = self._clock_ms() + self._limits.suspect_ms
            self._suspects.move_to_end((key, place.incarnation))
            while len(self._suspects) > self._limits.suspect_count:
                self._suspects.popitem(last=False)

    # Inside -------------------------------------------------------------------------------------------------

    def _read_places(self, search: _Search, read: Read, deadline_ms: int) -> None:
        for _ in range(self._limits.tries):
            batches = search.next_batches()
            if not batches:
                return
            for place, positions in batches.items():
                left_ms = deadline_ms - self._clock_ms()
                if left_ms <= 0:
                    return
                # A holder that says nothing leaves half of the time for the next one.
                answers = self._read_one(place, positions, read=read, budget_ms=max(1, left_ms // 2))
                self.counts["hits"] += search.take(place, positions, answers)

    def _read_one(self, place: Place, positions: Sequence[int], *, read: Read, budget_ms: int) -> Sequence[ReadResult]:
        client = self._client(place, budget_ms)
        answers = [] if client is None else read(client, positions, budget_ms)
        away = all(answer.reason in _AWAY for answer in answers)
        if answers:
            self._note(place, away=away)
        self.counts["away" if away else "asked"] += 1
        return answers

    def _client(self, place: Place, timeout_ms: int) -> _native.NodeClient | None:
        """Connected to exactly that incarnation, or None."""
        if place.address.startswith(UNIX_PREFIX) and not Path(place.address.removeprefix(UNIX_PREFIX)).exists():
            return None  # a socket of another host
        known, dropped = self._known_at(place.address)
        for one in dropped:
            one.client.close()
        if known.paused_until_ms > self._clock_ms():
            return None
        if not known.client.connected and known.client.connect(timeout_ms)[0] != 0:
            self._note(place, away=True)
            return None
        if known.client.info["incarnation"] != place.incarnation:  # somebody else serves there now
            return None
        return known.client

    def _known_at(self, address: str) -> tuple[_Known, list[_Known]]:
        """(the node at that address, those that had to make room)."""
        dropped = []
        with self._lock:
            known = self._known.get(address)
            if known is None:
                known = self._known[address] = _Known(self._make_client(address))
                while len(self._known) > self._limits.client_count:
                    dropped.append(self._known.popitem(last=False)[1])
            self._known.move_to_end(address)
        return known, dropped

    def _note(self, place: Place, *, away: bool) -> None:
        with self._lock:
            known = self._known.get(place.address)
            if known is None:
                return
            if not away:
                known.pause_ms = known.paused_until_ms = 0
                return
            known.pause_ms = min(max(self._limits.pause_ms_min, 2 * known.pause_ms), self._limits.pause_ms_max)
            known.paused_until_ms = self._clock_ms() + known.pause_ms


class _Search:
    """One batch: what is still missing, and who may have it."""

    def __init__(self, holders: Holders, results: MutableSequence[ReadResult], keys: Sequence[Hashable]) -> None:
        self.own_incarnation = 0
        self._holders = holders
        self._results = results
        self._keys = keys
        self._waiting: dict[int, list[Place]] = {}
        self._tried: dict[int, set[int]] = {}

    def missing(self) -> list[int]:
        """Positions of what another node may have."""
        return [position for position, result in enumerate(self._results) if not result and result.reason in ELSEWHERE]

    def add(self, places: dict[int, list[Place]]) -> None:
        """Who may have what, the first to be asked first."""
        self._waiting = places

    def next_batches(self) -> dict[Place, list[int]]:
        """The next holder of each position that is still missing, put together by holder."""
        batches: dict[Place, list[int]] = {}
        for position in self.missing():
            place = self._next_place(position)
            if place is not None:
                batches.setdefault(place, []).append(position)
        return batches

    def _next_place(self, position: int) -> Place | None:
        waiting = self._waiting.get(position, [])
        tried = self._tried.setdefault(position, {self.own_incarnation})
        while waiting:
            place = waiting.pop(0)
            if place.incarnation not in tried and not self._holders.is_suspect(self._keys[position], place):
                tried.add(place.incarnation)
                return place
        return None

    def take(self, place: Place, positions: Sequence[int], answers: Sequence[ReadResult]) -> int:
        """How many of them were hits."""
        hit_count = 0
        for position, answer in zip(positions, answers, strict=False):  # none at all from one that is away
            if answer:
                self._results[position] = answer
                hit_count += 1
            elif answer.reason in ELSEWHERE and answer.reason not in _AWAY:
                self._holders.suspect(self._keys[position], place)
        return hit_count


def _shuffled(places: Iterable[Place]) -> list[Place]:
    """In any order, so that the readers of a popular key do not all go to one of its holders."""
    chosen = list(places)
    random.shuffle(chosen)
    return chosen
