"""What a plan of transfers over rails may say: every byte in one place, and estimates by the same whole numbers.

The native plan chooses slices and rails; the model says whether a choice was legal, and predicts everything else: what
is done, with which reason, which connections owe a drop, and what is known of each rail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NONE, UNAVAILABLE, TIMED_OUT = 0, 15, 16
PAUSED, CONNECTING, TRIAL, UP = range(4)

ATTEMPTS_MAX = 4
CONNECT_ATTEMPTS_MAX = 3
SECOND_US = 1_000_000
GUESS_BYTES_PER_SECOND = 1_000_000_000
BYTES_PER_SECOND_MAX = 1 << 40
NOMINAL_DIVISOR, NOMINAL_FACTOR = 256, 8
SMOOTHING_US = 50_000
SAMPLE_BYTES_MIN = 128 << 10
PAUSE_MIN_US, PAUSE_MAX_US, PAUSE_LONELY_MAX_US = 100_000, 2_000_000, 250_000
HEALTHY_PAUSES = 4
WINDOW_BYTES_MAX = 16 << 20
SLICE_BYTES_MAX = (1 << 20) * 5 // 4


@dataclass
class RailModel:
    nominal: int
    permille: int
    state: int = PAUSED
    connection: int = 0
    bytes_per_second: int = 0
    latency_us: int = 0
    inflight_bytes: int = 0
    inflight_count: int = 0
    busy_since_us: int = 0
    busy_bytes: int = 0
    fresh: bool = True
    measured: bool = False
    connected_us: int = 0
    paused_us: int = 0
    pause_us: int = 0
    failure_count: int = 0
    failures_in_row: int = 0
    connect_failures_in_row: int = 0

    def __post_init__(self) -> None:
        self.bytes_per_second = self.bounded(self.nominal or GUESS_BYTES_PER_SECOND)

    def bounded(self, value: int) -> int:
        lowest = max(1, self.nominal // NOMINAL_DIVISOR)
        highest = min(self.nominal * NOMINAL_FACTOR, BYTES_PER_SECOND_MAX) if self.nominal else BYTES_PER_SECOND_MAX
        return min(max(value, lowest), max(lowest, highest))

    @property
    def usable(self) -> bool:
        return self.state >= TRIAL

    def predicted_us(self, length: int) -> int:
        moving_us = (self.inflight_bytes + length) * SECOND_US // self.bytes_per_second
        return (self.latency_us + moving_us) * self.permille // 1000

    def connect(self, connection: int, now_us: int) -> None:
        self.state = TRIAL if self.failures_in_row else UP
        self.connection, self.connected_us, self.connect_failures_in_row = connection, now_us, 0

    def fail(self, now_us: int) -> None:
        calm = self.failures_in_row == 0 and now_us - self.connected_us >= HEALTHY_PAUSES * self.pause_us
        short = (self.usable and calm) or self.pause_us == 0
        self.pause_us = PAUSE_MIN_US if short else min(2 * self.pause_us, PAUSE_MAX_US)
        self.connect_failures_in_row += 0 if self.usable else 1
        self.state, self.paused_us = PAUSED, now_us
        self.inflight_bytes = self.inflight_count = 0
        self.failure_count += 1
        self.failures_in_row += 1

    def start(self, length: int, now_us: int) -> None:
        if self.inflight_count == 0:
            self.busy_since_us, self.busy_bytes, self.fresh = now_us, 0, True
        self.inflight_bytes += length
        self.inflight_count += 1

    def end(self, length: int) -> None:
        self.inflight_bytes -= length
        self.inflight_count -= 1
        self.failures_in_row, self.state = 0, UP

    def finish(self, length: int, started_us: int, now_us: int) -> None:
        self.end(length)
        self.busy_bytes += length
        if self.busy_bytes >= SAMPLE_BYTES_MIN:
            elapsed_us = now_us - self.busy_since_us
            busy_us = max(1, elapsed_us - min(elapsed_us, self.latency_us if self.fresh else 0))
            known_us = SMOOTHING_US if self.measured else 0
            moved = self.bytes_per_second * known_us + self.busy_bytes * SECOND_US
            self.bytes_per_second = self.bounded(moved // (known_us + busy_us))
            self.measured = now_us != 0
            self.busy_since_us, self.busy_bytes, self.fresh = now_us, 0, False
        elif self.fresh and self.busy_bytes == length and self.inflight_count == 0:
            moving_us = length * SECOND_US // self.bytes_per_second
            latency_us = max(0, now_us - started_us - moving_us)
            self.latency_us = (self.latency_us * 7 + latency_us) // 8 if self.latency_us else latency_us

    def refuse(self, length: int, now_us: int) -> None:
        self.end(length)
        self.busy_since_us, self.busy_bytes = now_us, 0

    def withdraw(self, length: int) -> None:
        self.inflight_bytes -= length
        self.inflight_count -= 1


@dataclass
class OperationModel:
    length: int
    write: bool
    pending: list[tuple[int, int]]  # [begin, end), in order
    applied_bytes: int = 0
    inflight: set[int] = field(default_factory=set)
    reason: int = NONE

    @property
    def open(self) -> bool:
        return bool(self.inflight) if self.reason else self.applied_bytes < self.length

    def take(self, begin: int, end: int) -> None:
        around = [(a, b) for a, b in self.pending if a <= begin and end <= b]
        assert around, f"bytes {begin} to {end} are not waiting: {self.pending}"
        self.pending.remove(around[0])
        self.give_back(around[0][0], begin)
        self.give_back(end, around[0][1])

    def give_back(self, begin: int, end: int) -> None:
        if begin < end:
            self.pending.append((begin, end))


@dataclass
class TransferModel:
    operations: list[OperationModel]
    deadline_us: int
    stale: set[tuple[int, int]] = field(default_factory=set)  # (connection, operation)


class PlanModel:
    def __init__(self) -> None:
        self.rails: list[RailModel] = []
        self.transfers: dict[int, TransferModel] = {}
        self.slices: dict[int, dict[str, Any]] = {}  # under way; "live": its transfer wants it
        self.owed: set[int] = set()
        self.done: dict[int, list[tuple[int, bool]]] = {}

    def add(self, transfer: int, operations: list[tuple[int, bool]], deadline_us: int, now_us: int) -> None:
        made = [OperationModel(length, write, [(0, length)] if length else []) for length, write in operations]
        self.transfers[transfer] = TransferModel(made, max(deadline_us, now_us))
        if self.hopeless() and not any(self.connect_at_us(rail) <= now_us for rail in self.rails):
            self.end(transfer, UNAVAILABLE)
        self._finish_if_complete(transfer)

    def take(self, slice_: dict[str, Any], now_us: int) -> None:
        """The native plan sends this."""
        rail = self.rails[slice_["rail"]]
        operation = self.transfers[slice_["transfer"]].operations[slice_["operation"]]
        assert rail.usable, "a slice for a rail that is not connected"
        assert rail.state == UP or rail.inflight_count == 0, "more than one slice on trial"
        assert 0 < slice_["length"] <= SLICE_BYTES_MAX
        assert rail.inflight_count == 0 or rail.inflight_bytes + slice_["length"] <= WINDOW_BYTES_MAX
        assert slice_["attempt"] <= ATTEMPTS_MAX
        assert slice_["write"] == operation.write
        assert operation.reason == NONE, "a slice of an operation that has failed"
        operation.take(slice_["offset"], slice_["offset"] + slice_["length"])
        operation.inflight.add(slice_["slice"])
        rail.start(slice_["length"], now_us)
        self.slices[slice_["slice"]] = {**slice_, "live": True, "started_us": now_us}

    def nothing_to_send(self, now_us: int) -> None:
        """The native plan says so: then no idle rail that is up has any work waiting for it."""
        waiting = any(operation.pending for transfer in self.transfers.values() for operation in transfer.operations)
        idle = any(rail.state == UP and rail.inflight_count == 0 for rail in self.rails)
        # With several rails a slow one may rightly be left idle.
        assert not (waiting and idle and len(self.rails) == 1), "work waits beside an idle rail"

    def finish(self, name: int, now_us: int) -> None:
        slice_ = self.slices[name]
        self.rails[slice_["rail"]].finish(slice_["length"], slice_["started_us"], now_us)
        if (operation := self._operation(slice_)) and operation.reason == NONE:
            operation.applied_bytes += slice_["length"]
        self._end_slice(name)

    def refuse(self, name: int, reason: int, now_us: int) -> None:
        slice_ = self.slices[name]
        self.rails[slice_["rail"]].refuse(slice_["length"], now_us)
        if operation := self._operation(slice_):
            self._fail(operation, reason)
        self._end_slice(name)

    def withdraw(self, name: int) -> None:
        slice_ = self.slices[name]
        self.rails[slice_["rail"]].withdraw(slice_["length"])
        if (operation := self._operation(slice_)) and operation.reason == NONE:
            operation.give_back(slice_["offset"], slice_["offset"] + slice_["length"])
        self._end_slice(name)

    def fail_rail(self, index: int, now_us: int) -> None:
        rail = self.rails[index]
        rail.fail(now_us)
        for name in [name for name, slice_ in self.slices.items() if slice_["rail"] == index]:
            self._lose(name, rail.connection)
        if self.hopeless():
            for transfer in list(self.transfers):
                self.end(transfer, UNAVAILABLE)

    def drop(self, connection: int) -> None:
        self.owed.discard(connection)
        for name, transfer in list(self.transfers.items()):
            transfer.stale = {stale for stale in transfer.stale if stale[0] != connection}
            self._finish_if_complete(name)

    def expire(self, now_us: int) -> set[int]:
        """The slices that were under way."""
        late = [name for name, transfer in self.transfers.items() if transfer.deadline_us <= now_us]
        return set().union(*(self.end(name, TIMED_OUT) for name in late))

    def end(self, name: int, reason: int) -> set[int]:
        transfer = self.transfers.pop(name)
        under_way: set[int] = set()
        results = []
        for index, operation in enumerate(transfer.operations):
            stale = any(of == index for _, of in transfer.stale)
            if operation.applied_bytes < operation.length or stale:
                self._fail(operation, reason)
            results.append((operation.reason, operation.write and (bool(operation.inflight) or stale)))
            under_way |= operation.inflight
        for slice_ in under_way:
            self.slices[slice_]["live"] = False
        self.done[name] = results
        return under_way

    def hopeless(self) -> bool:
        return all(rail.state == PAUSED and rail.connect_failures_in_row >= CONNECT_ATTEMPTS_MAX for rail in self.rails)

    def connect_at_us(self, rail: RailModel) -> int:
        if rail.state != PAUSED:
            return 2**64 - 1
        longest_us = PAUSE_MAX_US if any(other.usable for other in self.rails) else PAUSE_LONELY_MAX_US
        return rail.paused_us + min(rail.pause_us, longest_us)

    def _operation(self, slice_: dict[str, Any]) -> OperationModel | None:
        return self.transfers[slice_["transfer"]].operations[slice_["operation"]] if slice_["live"] else None

    def _lose(self, name: int, connection: int) -> None:
        slice_ = self.slices[name]
        if slice_["write"]:
            self.owed.add(connection)
        if operation := self._operation(slice_):
            if slice_["write"]:
                self.transfers[slice_["transfer"]].stale.add((connection, slice_["operation"]))
            if operation.reason == NONE and slice_["attempt"] >= ATTEMPTS_MAX:
                self._fail(operation, UNAVAILABLE)
            elif operation.reason == NONE:
                operation.give_back(slice_["offset"], slice_["offset"] + slice_["length"])
        self._end_slice(name)

    def _fail(self, operation: OperationModel, reason: int) -> None:
        operation.reason = operation.reason or reason
        operation.pending.clear()

    def _end_slice(self, name: int) -> None:
        slice_ = self.slices.pop(name)
        if operation := self._operation(slice_):
            operation.inflight.discard(name)
            self._finish_if_complete(slice_["transfer"])

    def _finish_if_complete(self, name: int) -> None:
        transfer = self.transfers.get(name)
        if transfer and not transfer.stale and not any(operation.open for operation in transfer.operations):
            self.end(name, NONE)
