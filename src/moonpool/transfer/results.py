"""What became of a transfer: true when all of it is applied, else what failed and why."""

from __future__ import annotations

import enum

import msgspec

from moonpool import _native
from moonpool.types import Reason


class Priority(enum.IntEnum):
    """Who goes first. Latency-critical transfers overtake bulk ones, without starving them."""

    LATENCY = 0
    NORMAL = 1
    BULK = 2


class TransferFailure(msgspec.Struct, frozen=True):
    """One operation that is not applied, or not whole."""

    operation: int  # its index in the batch
    reason: Reason
    # A write whose bytes the peer may still have under way: do not reuse the remote memory before its owner has
    # unregistered it, or another transfer to it was applied.
    may_be_applied_later: bool = False


class TransferResult(msgspec.Struct, frozen=True):
    """Of a whole batch. True when every operation is applied at its destination and the message is delivered."""

    operation_count: int
    failures: tuple[TransferFailure, ...] = ()
    message_reason: Reason = Reason.NONE
    checksums: tuple[int, ...] = ()  # CRC32C of each operation's bytes, where they were asked for

    def __bool__(self) -> bool:
        return not self.failures and self.message_reason is Reason.NONE

    @property
    def reason(self) -> Reason:
        """Why the first thing failed; `Reason.NONE` when nothing did."""
        return self.failures[0].reason if self.failures else self.message_reason


class Message(msgspec.Struct, frozen=True):
    """A small message of a peer."""

    sender: str  # the name of its engine
    content: bytes


_APPLIED = {count: TransferResult(count) for count in range(65)}


def result_of(outcome: _native.TransferOutcome, operation_count: int) -> TransferResult:
    """From the native engine's numbers."""
    if not outcome.failures and not outcome.message_reason and not outcome.checksums:
        return applied(operation_count)
    failures = tuple(TransferFailure(index, Reason(reason), later) for index, reason, later in outcome.failures)
    return TransferResult(operation_count, failures, Reason(outcome.message_reason), tuple(outcome.checksums))


def applied(operation_count: int) -> TransferResult:
    """Nothing failed."""
    return _APPLIED.get(operation_count) or TransferResult(operation_count)


def failed(reason: int, *, later: bool) -> TransferResult:
    """The only operation failed."""
    return TransferResult(1, (TransferFailure(0, Reason(reason), later),))
