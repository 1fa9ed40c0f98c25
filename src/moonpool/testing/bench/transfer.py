"""Rows of the transfer engine: bytes between two processes, beside bare TCP sockets of the same number."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Self

from moonpool.errors import PeerUnavailable
from moonpool.testing.bench.machine import private_memory
from moonpool.testing.bench.measure import GIGABYTE, Effort, Row, call_times_us, in_turns, percentile, row
from moonpool.testing.bench.spinner import awake
from moonpool.testing.bench.stage import Stage
from moonpool.testing.bench.topics import Bar, Topic, ratio_at_least, ratio_at_most, value_at_least
from moonpool.testing.bench.transfer_peer import PING, PING_BYTES, READ, REQUEST, WRITE, receive_exactly
from moonpool.transfer.engine import TransferEngine
from moonpool.transfer.operations import Read, Write
from moonpool.transfer.regions import RemoteRegion

KIB = 1024
MIB = 1024 * KIB
Move = Callable[[int, int], None]  # (offset, bytes)
BATCH_COUNT = 64
SMALL_BYTES = 4 * KIB
PASS_BYTES = 256 * MIB  # of one pass of a bandwidth row
SMALL_PASS_BATCHES = 200
SIZES = {"1MiB": MIB, "4MiB": 4 * MIB, "64MiB": 64 * MIB}
_STREAM_BARS: dict[str, Bar | None] = {
    f"transfer.{verb}.tcp.{size}": ratio_at_least(0.9) for size in SIZES for verb in ("write", "read")
}
_BATCH_BARS: dict[str, Bar | None] = {
    f"transfer.{verb}.tcp.batch64.64KiB": ratio_at_least(0.75) for verb in ("write", "read")
}
_SMALL_BARS: dict[str, Bar | None] = {
    **{f"transfer.{verb}.tcp.batch64.4KiB": value_at_least(300_000) for verb in ("write", "read")},
    "machine.tcp_ping_pong.64B.p50": None,
    **{f"transfer.{verb}.tcp.4KiB.p50": ratio_at_most(1.6) for verb in ("write", "read")},
}


class Bench:
    """An engine here and one in another process, and a bare socket between the same two."""

    def __init__(self, byte_count: int, effort: Effort) -> None:
        """byte_count: of the memory on each side; moves walk through it, so that they meet cold memory."""
        self.byte_count = byte_count
        self.effort = effort
        secret = secrets.token_hex(8)
        command = [sys.executable, "-m", "moonpool.testing.bench.transfer_peer", secret, str(byte_count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerUnavailable("the benchmark's peer process ended at its start")
        place = json.loads(line)
        self.engine = TransferEngine(name="bench", secret=secret.encode())
        self.memory = memoryview(private_memory(byte_count))
        self.local = self.engine.register(self.memory, writable=True)
        self.remote = RemoteRegion.from_bytes(bytes.fromhex(place["descriptor"]))
        self.peer = self.engine.connect(place["address"])
        self.bare = socket.create_connection(("127.0.0.1", place["bare_port"]))
        self.bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ping = REQUEST.pack(PING, 0, PING_BYTES).ljust(PING_BYTES)

    def write(self, offset: int, byte_count: int) -> None:
        """By the engine."""
        require(bool(self.peer.write(self.local.address + offset, self.remote.at(offset), byte_count)))

    def read(self, offset: int, byte_count: int) -> None:
        """By the engine."""
        require(bool(self.peer.read(self.local.address + offset, self.remote.at(offset), byte_count)))

    def bare_write(self, offset: int, byte_count: int) -> None:
        """The same bytes over the bare socket, until the other side says that it has them."""
        self.bare.sendall(REQUEST.pack(WRITE, offset, byte_count))
        self.bare.sendall(self.memory[offset : offset + byte_count])
        require(self.bare.recv(1) == b"!")

    def bare_read(self, offset: int, byte_count: int) -> None:
        """The same bytes over the bare socket."""
        self.bare.sendall(REQUEST.pack(READ, offset, byte_count))
        receive_exactly(self.bare, self.memory[offset : offset + byte_count])

    def ping_pong(self, _number: int = 0) -> None:
        """64 bytes there and back."""
        self.bare.send(self._ping)
        self.bare.recv(PING_BYTES, socket.MSG_WAITALL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.engine.close()
        self.bare.close()
        self._process.communicate()


def require(truth: bool) -> None:
    """RuntimeError when a transfer failed: a number without its bytes is none."""
    if not truth:
        raise RuntimeError("a transfer of the benchmark failed")


def single_rows(bench: Bench) -> Iterator[Row]:
    """GB/s of one operation at a time."""
    for name, byte_count in SIZES.items():
        offsets = list(range(0, bench.byte_count - byte_count + 1, byte_count))[: max(1, PASS_BYTES // byte_count)]
        moves = (bench.write, bench.bare_write, bench.read, bench.bare_read)
        works = [partial(_walk, move, offsets, byte_count) for move in moves]
        rates = _rates(works, len(offsets) * byte_count, bench.effort)
        yield row(f"transfer.write.tcp.{name}", rates[0], "GB/s", limit=rates[1])
        yield row(f"transfer.read.tcp.{name}", rates[2], "GB/s", limit=rates[3])


def batch_rows(bench: Bench) -> Iterator[Row]:
    """GB/s of 64 slices of 64 KiB in one call, beside the same bytes over the bare socket."""
    slice_bytes, batch_bytes = 64 * KIB, 64 * KIB * BATCH_COUNT
    starts = list(range(0, bench.byte_count - batch_bytes + 1, batch_bytes))[: max(1, PASS_BYTES // batch_bytes)]
    works = [
        partial(_run_all, bench, _batches(bench, Write, starts, slice_bytes=slice_bytes)),
        partial(_walk, bench.bare_write, starts, batch_bytes),
        partial(_run_all, bench, _batches(bench, Read, starts, slice_bytes=slice_bytes)),
        partial(_walk, bench.bare_read, starts, batch_bytes),
    ]
    rates = _rates(works, len(starts) * batch_bytes, bench.effort)
    yield row("transfer.write.tcp.batch64.64KiB", rates[0], "GB/s", limit=rates[1])
    yield row("transfer.read.tcp.batch64.64KiB", rates[2], "GB/s", limit=rates[3])


def small_rows(bench: Bench) -> Iterator[Row]:
    """Operations a second of 64 slices of 4 KiB in one call."""
    batch_bytes = SMALL_BYTES * BATCH_COUNT
    starts = [number * batch_bytes % (bench.byte_count - batch_bytes) for number in range(SMALL_PASS_BATCHES)]
    kinds = (Write, Read)
    works = [partial(_run_all, bench, _batches(bench, kind, starts, slice_bytes=SMALL_BYTES)) for kind in kinds]
    for name, taken in zip(("write", "read"), in_turns(works, pass_count=bench.effort.pass_count), strict=True):
        yield row(f"transfer.{name}.tcp.batch64.4KiB", len(starts) * BATCH_COUNT / taken, "ops/s")


def latency_rows(bench: Bench) -> Iterator[Row]:
    """p50 microseconds of one 4 KiB operation, beside a TCP ping-pong of 64 bytes. To be run with awake cores."""
    count = bench.effort.call_count
    round_trip_us = percentile(call_times_us(bench.ping_pong, call_count=2 * count), 50)
    yield row("machine.tcp_ping_pong.64B.p50", round_trip_us, "us")
    for name, move in (("write", bench.write), ("read", bench.read)):
        times_us = call_times_us(partial(_move_small, move), call_count=count)
        yield row(f"transfer.{name}.tcp.4KiB.p50", percentile(times_us, 50), "us", limit=round_trip_us)


def _walk(move: Move, offsets: list[int], byte_count: int) -> None:
    for offset in offsets:
        move(offset, byte_count)


def _run_all(bench: Bench, batches: list[Read | Write]) -> None:
    for batch in batches:
        require(bool(bench.peer.run([batch])))


def _move_small(move: Move, number: int) -> None:
    move(number % 1024 * SMALL_BYTES, SMALL_BYTES)


def _rates(works: list[partial[None]], byte_count: int, effort: Effort) -> list[float]:
    return [byte_count / taken / GIGABYTE for taken in in_turns(works, pass_count=effort.pass_count)]


def _batches(bench: Bench, kind: type[Read | Write], starts: list[int], *, slice_bytes: int) -> list[Read | Write]:
    lengths = array("Q", [slice_bytes] * BATCH_COUNT)
    batches: list[Read | Write] = []
    for start in starts:
        offsets = array("Q", range(start, start + slice_bytes * BATCH_COUNT, slice_bytes))
        addresses = array("Q", [bench.local.address + offset for offset in offsets])
        batches.append(kind(addresses, bench.remote.at(offsets), lengths))
    return batches


def transfer_rows(stage: Stage) -> Iterator[Row]:
    """Large operations and batches, cores left as they are."""
    with Bench(stage.byte_count, stage.effort) as bench:
        yield from single_rows(bench)
        yield from batch_rows(bench)


def awake_rows(stage: Stage) -> Iterator[Row]:
    """Small operations, with the cores awake."""
    with Bench(stage.byte_count, stage.effort) as bench, awake():
        yield from small_rows(bench)
        yield from latency_rows(bench)


TOPICS = (
    Topic("transfers by TCP", {**_STREAM_BARS, **_BATCH_BARS}, transfer_rows),
    Topic("small transfers by TCP", _SMALL_BARS, awake_rows),
)
