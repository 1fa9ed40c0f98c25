"""Rows of rails: two of 1 Gbit/s to an emulated host against one, one cut in the middle, and its return."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

from moonpool.errors import PeerUnavailable
from moonpool.testing.bench.machine import MIB, private_memory
from moonpool.testing.bench.measure import Row, row
from moonpool.testing.bench.stage import Stage
from moonpool.testing.bench.topics import Topic, ratio_at_least, ratio_at_most, value_at_most
from moonpool.testing.hosts import EmulatedHost, why_not
from moonpool.transfer.engine import TransferEngine
from moonpool.transfer.operations import Write
from moonpool.transfer.peer import TransferPeer
from moonpool.transfer.regions import RemoteRegion

REGION_BYTES = 64 * MIB
RAIL_RATE = "1gbit"
PASS_COUNT = 3
CUT_AFTER_S = 0.2
CUT_ALLOWANCE_S = 0.5  # over the time of one rail
HEALING_TIMEOUT_S = 30
MEGABYTE = 1e6


class Bench:
    """An engine here, one on an emulated host, and the ways between them."""

    def __init__(self, engine: TransferEngine, host: EmulatedHost, place: dict[str, str]) -> None:
        port = place["address"].rpartition(":")[2]
        self.host = host
        self.local = engine.register(memoryview(private_memory(REGION_BYTES)), writable=True)
        self.remote = RemoteRegion.from_bytes(bytes.fromhex(place["descriptor"]))
        addresses = [f"{rail.there}:{port}" for rail in host.rails]
        self.one = engine.connect(addresses[0])
        self.both = engine.connect(*addresses)

    def seconds(self, peer: TransferPeer) -> float:
        """Of the fastest of some writes of the whole region: what else the machine does only makes them slower."""
        return min(self._write(peer) for _ in range(PASS_COUNT))

    def seconds_with_a_cut(self) -> float:
        """Of one such write, the second rail being cut in its middle."""
        began = time.perf_counter()
        transfer = self.both.submit([Write(self.local, self.remote)])
        time.sleep(CUT_AFTER_S)
        self.host.rails[1].cut()
        _require(bool(transfer.wait()))
        return time.perf_counter() - began

    def seconds_until_used_again(self) -> float:
        """From the moment of healing until the second rail has carried something, under load."""
        before = self._carried()
        self.host.rails[1].heal()
        began = time.perf_counter()
        transfer = self.both.submit([Write(self.local, self.remote)] * 16)
        while self._carried() == before:
            _require(time.perf_counter() - began < HEALING_TIMEOUT_S)
            time.sleep(0.01)
        taken = time.perf_counter() - began
        _require(bool(transfer.wait()))
        return taken

    def _carried(self) -> int:
        return int(self.both.status()["rails"][1]["written_bytes"])

    def _write(self, peer: TransferPeer) -> float:
        began = time.perf_counter()
        _require(bool(peer.write(self.local, self.remote)))
        return time.perf_counter() - began


@contextlib.contextmanager
def rails() -> Iterator[Bench]:
    """Everything that the rows need, running."""
    secret = secrets.token_hex(8)
    arguments = [sys.executable, "-m", "moonpool.testing.bench.transfer_peer", secret, str(REGION_BYTES), "0.0.0.0:0"]
    with EmulatedHost(rail_count=2, rate=RAIL_RATE) as host:
        process = subprocess.Popen(host.command(arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise PeerUnavailable("the benchmark's peer process ended at its start")
            with TransferEngine(name="bench", secret=secret.encode(), timeout_ms=60_000) as engine:
                yield Bench(engine, host, json.loads(line))
        finally:
            process.communicate()


def rail_rows(_stage: Stage) -> Iterator[Row]:
    """No rows, and a line that says why, where a host cannot be emulated."""
    if reason := why_not():
        sys.stderr.write(f"rows of rails are left out: {reason}\n")
        return
    with rails() as bench:
        one_s, both_s = bench.seconds(bench.one), bench.seconds(bench.both)
        megabytes = REGION_BYTES / MEGABYTE
        yield row("rails.write.two_of_1Gbit", megabytes / both_s, "MB/s", limit=megabytes / one_s)
        yield row("rails.write.one_cut", bench.seconds_with_a_cut(), "s", limit=one_s + CUT_ALLOWANCE_S)
        yield row("rails.used_again", bench.seconds_until_used_again(), "s")


def _require(truth: bool) -> None:
    if not truth:
        raise RuntimeError("a transfer of the benchmark failed")


TOPICS = (
    Topic(
        "rails to an emulated host",
        {
            "rails.write.two_of_1Gbit": ratio_at_least(1.9),
            "rails.write.one_cut": ratio_at_most(1.0),
            "rails.used_again": value_at_most(5.0),
        },
        rail_rows,
    ),
)
