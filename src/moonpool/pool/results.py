"""The native client's parallel lists as one result per key, made when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from moonpool.types import Hint, PutResult, ReadResult, Reason, Status

if TYPE_CHECKING:
    from moonpool import _native

_Result = TypeVar("_Result")

# Indexing a tuple costs a fifth of calling the enum.
_STATUSES = tuple(Status(number) for number in range(len(Status)))
_REASONS = tuple(Reason(number) for number in range(len(Reason)))
_HIT, _PRESENT = int(Status.HIT), int(Status.PRESENT)  # comparing with the enum's member costs ten times as much


class _Outcome(Protocol):
    @property
    def worked_count(self) -> int: ...
    def __len__(self) -> int: ...


class Holder(NamedTuple):
    """Who is believed to have an object. The name is a label; the incarnation is who it is."""

    name: str
    incarnation: int
    address: str


class ObjectInfo(msgspec.Struct, frozen=True, gc=False):
    """One object of a node, as `Pool.list` shows it."""

    key: bytes
    length: int
    checksum: int
    age_ms: int
    pinned: bool = False
    namespace_id: int = 0
    block_hash: int = 0
    kv_group: int = 0


class Results(MutableSequence[_Result]):
    """One result a key, in the order of the keys: a list that is made when it is first looked into, because most
    callers only want to know whether all worked (`worked_count`). Equal to a list of the same results.
    """

    __slots__ = ("_items", "_make", "_outcome")
    __hash__ = None  # type: ignore[assignment]  # as a list: it can change

    def __init__(self, outcome: _Outcome, make: Callable[[_Outcome], list[_Result]]) -> None:
        self._outcome = outcome
        self._make = make
        self._items: list[_Result] | None = None

    @property
    def worked_count(self) -> int:
        """How many of them are true."""
        return self._outcome.worked_count if self._items is None else sum(map(bool, self._items))

    def insert(self, index: int, value: _Result) -> None:
        """As of a list."""
        self._all().insert(index, value)

    @overload
    def __getitem__(self, index: int) -> _Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Result]: ...
    def __getitem__(self, index: int | slice) -> _Result | list[_Result]:
        return self._all()[index]

    @overload
    def __setitem__(self, index: int, value: _Result) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[_Result]) -> None: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        self._all()[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._all()[index]

    def __len__(self) -> int:
        return len(self._outcome) if self._items is None else len(self._items)

    def __iter__(self) -> Iterator[_Result]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Results):
            return self._all() == other._all()
        return self._all() == other if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[_Result]:
        if self._items is None:
            self._items = self._make(self._outcome)
        return self._items


def put_results(outcome: _native.PutOutcome, address: str) -> Results[PutResult]:
    """One result a key; `hint` names the holder of what is in the pool now."""
    return Results(outcome, partial(_put_list, address=address))


def read_results(outcome: _native.ReadOutcome, *, copied: bool = False) -> Results[ReadResult]:
    """One result a key. `copied`: a hit means that the whole length was verified and applied."""
    return Results(outcome, _copied_list if copied else _read_list)


def _put_list(outcome: Any, *, address: str) -> list[PutResult]:
    incarnation = outcome.incarnation
    return [
        PutResult(
            _STATUSES[status],
            _REASONS[reason],
            length,
            checksum,
            Hint(address, incarnation, generation) if generation and status <= _PRESENT else None,
        )
        for status, reason, length, checksum, generation in _columns(outcome)
    ]


def _read_list(outcome: Any) -> list[ReadResult]:
    return [
        ReadResult(_STATUSES[status], _REASONS[reason], length, checksum, generation)
        for status, reason, length, checksum, generation in _columns(outcome)
    ]


def _copied_list(outcome: Any) -> list[ReadResult]:
    return [
        ReadResult(
            _STATUSES[status], _REASONS[reason], length, checksum, generation, length if status == _HIT else 0
        )
        for status, reason, length, checksum, generation in _columns(outcome)
    ]  # fmt: skip


def _columns(outcome: Any) -> Iterator[tuple[int, int, int, int, int]]:
    return zip(
        outcome.statuses, outcome.reasons, outcome.lengths, outcome.checksums, outcome.generations, strict=True
    )  # fmt: skip
