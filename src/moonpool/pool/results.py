"""The native client's parallel lists as one result per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from moonpool.types import Hint, PutResult, ReadResult, Reason, Status

if TYPE_CHECKING:
    from moonpool import _native

# Indexing a tuple costs a fifth of calling the enum.
_STATUSES = tuple(Status(number) for number in range(len(Status)))
_REASONS = tuple(Reason(number) for number in range(len(Reason)))
_HIT, _PRESENT = int(Status.HIT), int(Status.PRESENT)  # comparing with the enum's member costs ten times as much


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


def put_results(outcome: _native.PutOutcome, address: str) -> list[PutResult]:
    """One result a key; `hint` names the holder of what is in the pool now."""
    incarnation = outcome.incarnation
    return [
        PutResult(
            _STATUSES[status],
            _REASONS[reason],
            length,
            checksum,
            Hint(address, incarnation, generation) if generation and status <= _PRESENT else None,
        )
        for status, reason, length, checksum, generation in zip(
            outcome.statuses, outcome.reasons, outcome.lengths, outcome.checksums, outcome.generations, strict=True
        )
    ]


def read_results(outcome: _native.ReadOutcome, *, copied: bool = False) -> list[ReadResult]:
    """One result a key. `copied`: a hit means that the whole length was verified and applied."""
    return [
        ReadResult(
            _STATUSES[status],
            _REASONS[reason],
            length,
            checksum,
            generation,
            length if copied and status == _HIT else 0,
        )
        for status, reason, length, checksum, generation in zip(
            outcome.statuses, outcome.reasons, outcome.lengths, outcome.checksums, outcome.generations, strict=True
        )
    ]
