"""Address ranges that the caller has vouched for: raw addresses are taken only from inside them."""

from __future__ import annotations

import bisect
import itertools
import operator
import threading
from typing import TYPE_CHECKING

from moonpool import _native
from moonpool.errors import UsageError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

ADDRESS_END = 1 << 64
_RANGES_TRIED_MAX = 4  # for a whole batch in one go


class Regions:
    """Registered ranges of this process, disjoint and sorted.

    Readers work on one immutable tuple, so that a registration in another thread never shows them half a change.
    """

    def __init__(self) -> None:
        self._ranges: tuple[tuple[int, int, object], ...] = ()  # (start, end, what keeps it alive)
        self._changing = threading.Lock()

    def add(self, address: int, length: int, owner: object) -> None:
        """Vouch for [address, address + length) until `discard`; UsageError when null or overlapping another."""
        check_range(address, length)
        if not length:
            raise UsageError(f"the range at {address:#x} is empty; register what has bytes", kind="bad_address")
        with self._changing:
            self._ranges = self._with(address, address + length, owner)

    def _with(self, address: int, end: int, owner: object) -> tuple[tuple[int, int, object], ...]:
        ranges = self._ranges
        at = bisect.bisect_left(ranges, address, key=operator.itemgetter(0))
        before = ranges[at - 1] if at else None
        after = ranges[at] if at < len(ranges) else None
        for other in (before, after):
            if other is not None and other[0] < end and address < other[1]:
                raise UsageError(
                    f"[{address:#x}, {end:#x}) overlaps the registered [{other[0]:#x}, {other[1]:#x}); "
                    "unregister that first",
                    kind="bad_address",
                )
        return (*ranges[:at], (address, end, owner), *ranges[at:])

    def discard(self, address: int) -> None:
        """Forget the range that begins at address; UsageError when none does."""
        if not isinstance(address, int):
            raise UsageError(f"an address is an int, not {type(address).__name__}", kind="bad_address")
        with self._changing:
            kept = tuple(item for item in self._ranges if item[0] != address)
            if len(kept) == len(self._ranges):
                raise UsageError(f"no registered range begins at {address:#x}", kind="bad_address")
            self._ranges = kept

    def require(self, addresses: Sequence[int], lengths: Sequence[int]) -> None:
        """UsageError unless every [address, address + length) lies inside one registered range."""
        ranges = self._ranges
        for address, length in zip(addresses, lengths, strict=True):
            check_range(address, length)
            at = bisect.bisect_right(ranges, address, key=operator.itemgetter(0)) - 1
            if at < 0 or address + length > ranges[at][1]:
                raise UsageError(
                    f"[{address:#x}, +{length}) is not inside a registered range; call pool.register() with the "
                    "memory first, or pass the buffer itself",
                    kind="bad_address",
                )

    def have(self, addresses: array[int], lengths: array[int]) -> bool:
        """Whether all of them are surely inside one range and none is empty: quick, and enough for most batches.
        What this denies, `require` judges.
        """
        return any(
            _native.lie_within(addresses, lengths, start, end - 1) for start, end, _ in self._ranges[:_RANGES_TRIED_MAX]
        )

    def __len__(self) -> int:
        return len(self._ranges)


def check_range(address: int, length: int) -> None:
    """UsageError for a null or negative address, a negative length, or an end past 64 bits."""
    if address <= 0:
        raise UsageError(f"address {address:#x} is null or negative", kind="bad_address")
    if length < 0:
        raise UsageError(f"length {length} at address {address:#x} is negative", kind="bad_address")
    if address + length > ADDRESS_END:
        raise UsageError(f"address {address:#x} plus length {length} exceeds 64 bits", kind="bad_address")


def require_disjoint(addresses: Sequence[int], lengths: Sequence[int]) -> None:
    """UsageError when two targets overlap: their bytes would depend on the order of the copies."""
    if _native.ascend_apart(addresses, lengths):  # as engines pass them
        return
    ends = list(map(operator.add, addresses, lengths))
    spans = sorted(span for span in zip(addresses, ends, strict=True) if span[0] < span[1])
    for (_, end), (start, _) in itertools.pairwise(spans):
        if start < end:
            raise UsageError(f"two targets overlap at address {start:#x}; give each its own memory", kind="bad_address")
