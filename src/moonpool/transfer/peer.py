"""One peer: read from its memory, write into it, and tell it something when that is done."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Self

from moonpool import _native
from moonpool.errors import UsageError
from moonpool.transfer.operations import Read, Write, items_of, place_of, slice_of
from moonpool.transfer.regions import RemoteRegion, RemoteSlice
from moonpool.transfer.results import Priority, TransferResult, applied, failed, result_of
from moonpool.types import Reason

if TYPE_CHECKING:
    from types import TracebackType

    from moonpool.transfer.engine import TransferEngine

MESSAGE_BYTES_MAX = 64 * 1024


class Transfer:
    """A submitted batch. Wait for it, poll it, or await it; the memory stays in use until it is done."""

    def __init__(
        self, native: _native.Transfer, engine: TransferEngine, *, operation_count: int, checksum: bool
    ) -> None:
        """Made by `TransferPeer.submit`."""
        self._native = native
        self._engine = engine
        self._operation_count = operation_count
        self._checksum = checksum

    @property
    def done(self) -> bool:
        """Whether it has a result."""
        return self._native.done

    def poll(self) -> TransferResult | None:
        """Its result, or None while it is under way."""
        return self._result() if self._native.done else None

    def wait(self, timeout_ms: int | None = None) -> TransferResult | None:
        """Its result; None when it is still under way after timeout_ms (None: its own deadline bounds the wait)."""
        limit_ms = 2**31 if timeout_ms is None else timeout_ms
        return self._result() if self._native.wait(limit_ms) else None

    def __await__(self) -> Generator[Any, None, TransferResult]:
        return self._wait_for_it().__await__()

    async def _wait_for_it(self) -> TransferResult:
        if not self._native.done:
            await self._engine.completions.wait(self._native.watch)
        return self._result()

    def _result(self) -> TransferResult:
        return result_of(self._native.outcome(self._checksum), self._operation_count)


class TransferPeer:
    """Another engine, reached over rails. Any thread; calls do their own sending and receiving.

    A call ends at its deadline at the latest. What a peer does, also its death, is a result; exceptions are for
    calls that are wrong. Made by `TransferEngine.connect`.
    """

    def __init__(self, native: _native.TransferPeer, engine: TransferEngine, address: str) -> None:
        """Made by `TransferEngine.connect`."""
        self._native = native
        self._engine = engine
        self._timeout_ms = engine.settings.timeout_ms
        self._closed = False
        self.address = address

    def read(
        self,
        local: Any,
        remote: RemoteRegion | RemoteSlice,
        length: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> TransferResult:
        """From the peer's region into our memory; see `Read` for the arguments. True when every byte is here."""
        return self._move(Read(local, remote, length), write=False, timeout_ms=timeout_ms)

    def write(
        self,
        local: Any,
        remote: RemoteRegion | RemoteSlice,
        length: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> TransferResult:
        """From our memory into the peer's region; see `Read`. True when every byte is applied there."""
        return self._move(Write(local, remote, length), write=True, timeout_ms=timeout_ms)

    def run(
        self,
        operations: Iterable[Read | Write],
        *,
        priority: Priority = Priority.NORMAL,
        timeout_ms: int | None = None,
        message: bytes = b"",
        checksum: bool = False,
    ) -> TransferResult:
        """All of them, in the calling thread; options as in `submit`."""
        self._require_open()
        items, count = items_of(operations)
        with self._engine.usage():
            outcome = self._native.run(
                items,
                priority=Priority(priority),
                timeout_ms=self._timeout(timeout_ms),
                message=_message(message),
                checksum=checksum,
            )
        return result_of(outcome, count)

    def submit(
        self,
        operations: Iterable[Read | Write],
        *,
        priority: Priority = Priority.NORMAL,
        timeout_ms: int | None = None,
        message: bytes = b"",
        checksum: bool = False,
    ) -> Transfer:
        """Begin all of them and return at once.

        message: delivered to the peer when every operation is applied (`TransferEngine.receive`), at most 64 KiB.
        checksum: sum the bytes while they are hot; the result has the CRC32C of each operation, and the bytes of a
        write are compared with what was applied. UsageError for memory, here or there, outside its region; nothing
        has moved then.
        """
        self._require_open()
        items, count = items_of(operations)
        with self._engine.usage():
            native = self._native.submit(
                items,
                priority=Priority(priority),
                timeout_ms=self._timeout(timeout_ms),
                message=_message(message),
                checksum=checksum,
            )
        return Transfer(native, self._engine, operation_count=count, checksum=checksum)

    def probe(self, *, timeout_ms: int | None = None) -> Reason:
        """`Reason.NONE` when the peer answers."""
        self._require_open()
        with self._engine.usage():
            return Reason(self._native.probe(self._timeout(timeout_ms)))

    def status(self) -> dict[str, Any]:
        """Its address, the transports in the order in which they are asked, and each rail's state and counts."""
        self._require_open()
        return {"address": self.address, "transports": self._native.transports(), "rails": self._native.rails()}

    def close(self) -> None:
        """Close the rails. What is under way fails with `Reason.CANCELLED`."""
        self._closed = True
        with self._engine.usage():
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _move(self, operation: Read | Write, *, write: bool, timeout_ms: int | None) -> TransferResult:
        place = slice_of(operation.remote)
        if not isinstance(place.offset, int):
            return self.run([operation], timeout_ms=timeout_ms)
        self._require_open()
        address, length = place_of(operation.local, operation.length, write=write)
        region = place.region
        with self._engine.usage():
            remote = (region.token, region.byte_count, region.writable)
            there_and_here = (place.offset, address, length)
            reason, later = self._native.run_one(write, remote, there_and_here, self._timeout(timeout_ms))
        return failed(reason, later=later) if reason else applied(1)

    def _require_open(self) -> None:
        self._engine.require_open()
        if self._closed:
            raise self._engine.closed_error(f"the connection to {self.address}")

    def _timeout(self, timeout_ms: object) -> int:
        if timeout_ms is None:
            return self._timeout_ms
        if not isinstance(timeout_ms, int) or not 0 <= timeout_ms < 2**31:
            raise UsageError(f"timeout_ms={timeout_ms!r} must be an int between 0 and {2**31 - 1}")
        return timeout_ms


def _message(message: object) -> bytes:
    if not isinstance(message, bytes) or len(message) > MESSAGE_BYTES_MAX:
        raise UsageError(f"a message is bytes, at most {MESSAGE_BYTES_MAX} of them")
    return message
