"""Reads of a pool: the own node first, then who else has what it has not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from moonpool import _native
from moonpool.errors import UsageError
from moonpool.pool.holders import Holders, Locate, Place, Wanted
from moonpool.pool.results import Results, read_results
from moonpool.types import Hint, ReadResult

if TYPE_CHECKING:
    from array import array

    from moonpool.pool.lookup import Lookup
    from moonpool.pool.values import Batch

Hints = Sequence[Hint | None] | None


class Reader:
    """What `Pool` reads with. `holders` is None where there is nobody else to ask."""

    def __init__(self, node: _native.NodeClient, lookup: Lookup, holders: Holders | None = None) -> None:
        self._node = node
        self.lookup = lookup
        self.holders = holders

    def get_into(
        self, names: list[bytes], batch: Batch, *, timeout_ms: int, hints: Hints = None
    ) -> Results[ReadResult]:
        """One result a key; a hit is verified and applied."""
        deadline_ms = _now_ms() + timeout_ms
        results = read_results(self._node.get_into(names, *batch.arrays(), timeout_ms=timeout_ms), copied=True)

        def read(client: _native.NodeClient, positions: Sequence[int], budget_ms: int) -> Results[ReadResult]:
            chosen = [names[position] for position in positions]
            part = client.get_into(chosen, *_part(batch, positions), timeout_ms=budget_ms)
            return read_results(part, copied=True)

        self._fill(results, Wanted(names, read, places_by(self.lookup, names), hints), deadline_ms)
        return results

    def get_blocks(
        self, layout: _native.Layout, numbers: array[int], names: list[bytes], *, timeout_ms: int, hints: Hints = None
    ) -> Results[ReadResult]:
        """The same into blocks of a layout."""
        deadline_ms = _now_ms() + timeout_ms
        results = read_results(self._node.get_blocks(layout, numbers, names, timeout_ms=timeout_ms), copied=True)

        def read(client: _native.NodeClient, positions: Sequence[int], budget_ms: int) -> Results[ReadResult]:
            chosen = [names[position] for position in positions]
            places = [numbers[position] for position in positions]
            return read_results(client.get_blocks(layout, places, chosen, timeout_ms=budget_ms), copied=True)

        self._fill(results, Wanted(names, read, places_by(self.lookup, names), hints), deadline_ms)
        return results

    def get_views(
        self, names: list[bytes], *, verify: bool, timeout_ms: int, hints: Hints = None
    ) -> tuple[list[_native.View | None], Results[ReadResult]]:
        """(a view a key, or None; results). From another host a view is of a verified copy."""
        deadline_ms = _now_ms() + timeout_ms
        borrowed, outcome = self._node.get_views(names, verify=verify, timeout_ms=timeout_ms)
        views, results = list(borrowed), read_results(outcome)

        def read(client: _native.NodeClient, positions: Sequence[int], budget_ms: int) -> Results[ReadResult]:
            chosen = [names[position] for position in positions]
            fetched, part = client.get_views(chosen, verify=True, timeout_ms=budget_ms)
            for position, view in zip(positions, fetched, strict=True):
                if view is not None:
                    views[position] = view
            return read_results(part)

        self._fill(results, Wanted(names, read, places_by(self.lookup, names), hints), deadline_ms)
        return views, results

    def status(self) -> list[dict[str, Any]]:
        """The other nodes that were asked."""
        return [] if self.holders is None else self.holders.status()

    def close(self) -> None:
        """Close the connections to other nodes."""
        if self.holders is not None:
            self.holders.close()

    def _fill(self, results: Results[ReadResult], wanted: Wanted, deadline_ms: int) -> None:
        if wanted.hints is not None and len(wanted.hints) != len(wanted.keys):
            raise UsageError(
                f"{len(wanted.keys)} keys but {len(wanted.hints)} hints; give one a key, None where there is none"
            )
        if self.holders is not None and results.worked_count < len(results):
            own_incarnation = int(self._node.info["incarnation"])
            self.holders.fill(results, wanted, own_incarnation=own_incarnation, deadline_ms=deadline_ms)


def places_by(lookup: Lookup, names: Sequence[bytes]) -> Locate:
    """What a directory says of some of the names; None when none answers."""

    def locate(positions: Sequence[int], timeout_ms: int) -> list[list[Place]] | None:
        found = lookup.ask_directories([names[position] for position in positions], timeout_ms=timeout_ms)
        if found is None:
            return None
        return [[Place(holder.address, holder.incarnation) for holder in holders] for holders in found]

    return locate


def _part(batch: Batch, positions: Sequence[int]) -> tuple[list[int], list[int], list[int] | None]:
    """Addresses, lengths and piece counts of some of the batch's values."""
    if batch.piece_counts is None:
        return (
            [batch.addresses[position] for position in positions],
            [batch.lengths[position] for position in positions],
            None,
        )
    ends = list(accumulate(batch.piece_counts))
    addresses: list[int] = []
    lengths: list[int] = []
    for position in positions:
        begin = ends[position] - batch.piece_counts[position]
        addresses += batch.addresses[begin : ends[position]]
        lengths += batch.lengths[begin : ends[position]]
    return addresses, lengths, [batch.piece_counts[position] for position in positions]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
