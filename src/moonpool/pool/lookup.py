"""Where are these blocks, where are these keys: directories first, within the budget, then the node itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from moonpool.pool.results import Holder
from moonpool.types import GroupRule, HolderMatch, Match, Status, Tier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moonpool import _native

FULL_ATTENTION = (GroupRule(),)


class Lookup:
    """Asks the directories in their order, the first that answers wins. A directory is soft state: whatever it
    does not know, or does not say in time, the node may still have, so a short answer is checked there. The client of
    a directory that was silent answers for a while at once that it is not reachable: it has a breaker of its own.
    """

    def __init__(self, node: _native.NodeClient, directories: Sequence[_native.DirectoryClient], address: str) -> None:
        self._node = node
        self._directories = tuple(directories)
        self._address = address

    def match(
        self, namespace_id: int, block_hashes: Any, groups: Sequence[GroupRule], *, block_count: int, timeout_ms: int
    ) -> Match:
        """The longest prefix, whoever holds it, in at most timeout_ms."""
        deadline_ms = _now_ms() + timeout_ms
        heard: Match | None = None
        for directory in self._directories:
            budget_ms = _half_until(deadline_ms)
            answer = _match(directory.match(namespace_id, block_hashes, groups, timeout_ms=budget_ms))
            if not answer.reachable:
                continue
            if heard is None or answer.fetchable_block_count > heard.fetchable_block_count:
                heard = answer
            if not answer.warming:
                break
        if heard is not None and heard.fetchable_block_count >= block_count:
            return heard
        own = _match(self._node.match(namespace_id, block_hashes, groups, timeout_ms=_until(deadline_ms)))
        if heard is None or (own.reachable and own.fetchable_block_count >= heard.fetchable_block_count):
            return own
        return heard

    def locate(self, keys: list[bytes], *, timeout_ms: int) -> list[list[Holder]]:
        """Holders of each key; a key that no directory knows is looked for on the node."""
        deadline_ms = _now_ms() + timeout_ms
        places = self.ask_directories(keys, timeout_ms=timeout_ms) or [[] for _ in keys]
        missing = [position for position, holders in enumerate(places) if not holders]
        if not missing:
            return places
        found = self._node.exists([keys[position] for position in missing], timeout_ms=_until(deadline_ms))
        info = self._node.info
        address = str(info.get("address", "")) or self._address
        here = Holder(str(info.get("node", "")), int(info.get("incarnation", 0)), address)
        for position, status in zip(missing, found.statuses, strict=True):
            if status == Status.HIT:
                places[position] = [here]
        return places

    def ask_directories(self, keys: list[bytes], *, timeout_ms: int) -> list[list[Holder]] | None:
        """Holders of each key as the first directory that answers knows them; None when none does."""
        deadline_ms = _now_ms() + timeout_ms
        for directory in self._directories:
            answer = directory.locate(keys, timeout_ms=_half_until(deadline_ms))
            if answer is not None:
                return [[Holder(*holder) for holder in holders] for holders in answer]
        return None

    def describe(self, document: str, *, timeout_ms: int) -> bool:
        """Tell the node and every directory who this client is; whether the node heard it. One that is away is told
        when it is back.
        """
        deadline_ms = _now_ms() + timeout_ms
        for directory in self._directories:
            directory.describe(document, timeout_ms=_half_until(deadline_ms))
        return self._node.describe(document, timeout_ms=_until(deadline_ms))

    def close(self) -> None:
        """Close the connections to the directories."""
        for directory in self._directories:
            directory.close()


def _match(outcome: _native.MatchOutcome) -> Match:
    holders = tuple(
        HolderMatch(name, incarnation, count, Tier(tiers)) for name, incarnation, count, tiers in outcome.holders
    )
    return Match(outcome.fetchable, holders, outcome.warming, outcome.reachable)


def _half_until(deadline_ms: int) -> int:
    """For a directory: half of what is left, so that a silent one leaves time for the node."""
    return max(1, (deadline_ms - _now_ms()) // 2)


def _until(deadline_ms: int) -> int:
    return max(1, deadline_ms - _now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
