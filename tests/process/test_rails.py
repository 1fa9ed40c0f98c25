"""Rails to another (emulated) host: both are used, one may be cut, the urgent overtakes, a bad line only costs time."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transfer_processes import SECRET, Receiver

from moonpool import Priority, Read, TransferEngine, TransferPeer, Write
from moonpool.testing.hosts import EmulatedHost, Relay, why_not
from moonpool.testing.hosts.network import clear_leftovers
from moonpool.types import Reason

MIB = 1024 * 1024
REGION_BYTES = 32 * MIB
PATIENCE_S = 60

pytestmark = pytest.mark.process
needs_host = pytest.mark.skipif(bool(why_not()), reason=f"no emulated host here: {why_not()}")


@pytest.fixture
def host() -> Iterator[EmulatedHost]:
    with EmulatedHost(rail_count=2, rate="1gbit") as emulated:
        yield emulated


@pytest.fixture
def far(host: EmulatedHost) -> Iterator[Receiver]:
    with Receiver(REGION_BYTES, "0.0.0.0:0", wrap=host.command) as running:
        yield running


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    with TransferEngine(name="sender", secret=SECRET, timeout_ms=PATIENCE_S * 1000, stall_ms=300) as made:
        yield made


def connect(engine: TransferEngine, host: EmulatedHost, far: Receiver) -> TransferPeer:
    port = far.address.rpartition(":")[2]
    return engine.connect(*(f"{rail.there}:{port}" for rail in host.rails), local=[rail.here for rail in host.rails])


def rails_of(peer: TransferPeer) -> list[dict[str, object]]:
    return list(peer.status()["rails"])


def written_bytes(peer: TransferPeer, index: int) -> int:
    return int(str(rails_of(peer)[index]["written_bytes"]))


def wait_until(happened: Callable[[], bool], what: str) -> None:
    """Looks again and again, until a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"did not happen in {PATIENCE_S} s: {what}"
        time.sleep(0.01)


@needs_host
def test_both_rails_carry_a_long_transfer(engine: TransferEngine, host: EmulatedHost, far: Receiver) -> None:
    source = os.urandom(REGION_BYTES)
    peer = connect(engine, host, far)
    assert peer.write(engine.register(source), far.region)
    assert far.ask("sum") == hashlib.sha256(source).hexdigest()
    shares = [written_bytes(peer, index) for index in range(2)]
    assert sum(shares) == REGION_BYTES
    assert min(shares) > REGION_BYTES // 4, f"one rail carried nearly all: {shares}"


@needs_host
def test_a_rail_cut_in_the_middle_of_a_write_costs_nothing_but_time_and_is_used_again_when_it_heals(
    engine: TransferEngine, host: EmulatedHost, far: Receiver
) -> None:
    source = os.urandom(REGION_BYTES)
    region = engine.register(source)
    peer = connect(engine, host, far)
    transfer = peer.submit([Write(region, far.region)] * 4)
    wait_until(lambda: written_bytes(peer, 1) > 0, "the second rail carries something")
    host.rails[1].cut()
    result = transfer.wait()
    assert result, result
    assert far.ask("sum") == hashlib.sha256(source).hexdigest()
    assert rails_of(peer)[1]["failure_count"] != 0, "the cut rail was noticed"
    before = written_bytes(peer, 1)
    host.rails[1].heal()

    def used_again() -> bool:
        assert peer.write(region, far.region)
        return written_bytes(peer, 1) > before

    wait_until(used_again, "the healed rail carries something again")


@needs_host
def test_a_rail_cut_in_the_middle_of_a_read_leaves_the_right_bytes(
    engine: TransferEngine, host: EmulatedHost, far: Receiver
) -> None:
    content = os.urandom(REGION_BYTES)
    peer = connect(engine, host, far)
    assert peer.write(engine.register(content), far.region)
    target = engine.allocate(REGION_BYTES)
    transfer = peer.submit([Read(target, far.region)], checksum=True)
    host.rails[0].cut()
    result = transfer.wait()
    assert result, result
    assert target.memory == content


@needs_host
def test_with_every_rail_cut_a_transfer_fails_in_time_and_the_next_one_after_healing_works(
    engine: TransferEngine, host: EmulatedHost, far: Receiver
) -> None:
    region = engine.register(os.urandom(REGION_BYTES))
    peer = connect(engine, host, far)
    for rail in host.rails:
        rail.cut()
    result = peer.write(region, far.region, timeout_ms=1_500)
    assert not result
    assert result.reason in (Reason.TIMED_OUT, Reason.UNAVAILABLE)
    for rail in host.rails:
        rail.heal()
    wait_until(lambda: bool(peer.write(region, far.region, timeout_ms=5_000)), "a write after healing")


@needs_host
def test_urgent_transfers_end_while_a_bulk_transfer_goes_on_and_the_bulk_transfer_ends_too(
    engine: TransferEngine, host: EmulatedHost, far: Receiver
) -> None:
    region = engine.register(os.urandom(REGION_BYTES))
    small = engine.allocate(64 * 1024)
    peer = connect(engine, host, far)
    bulk = peer.submit([Write(region, far.region)] * 8, priority=Priority.BULK)
    for _ in range(20):
        assert peer.run([Read(small, far.region.at(0), 64 * 1024)], priority=Priority.LATENCY)
    assert not bulk.done, "256 MiB at 2 Gbit/s take a second: twenty urgent reads behind their end overtook nothing"
    assert bulk.wait()


@needs_host
def test_what_a_crash_leaves_behind_is_cleared_away() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = f"mp{gone.pid}-0"
    subprocess.run(["ip", "netns", "add", left], check=True)
    clear_leftovers()
    assert not Path("/run/netns", left).exists()


def test_a_line_that_delays_and_loses_only_costs_time(engine: TransferEngine) -> None:
    content = os.urandom(2 * MIB)
    seed = random.randrange(2**32)
    print(f"losses are drawn from seed {seed}")
    with (
        Receiver(2 * MIB) as far,
        Relay(far.address, delay_s=0.02, loss=0.1, seed=seed) as bad,
        Relay(far.address, delay_s=0.005) as good,
    ):
        peer = engine.connect(bad.address, good.address)
        assert peer.write(engine.register(content), far.region)
        target = engine.allocate(2 * MIB)
        assert peer.read(target, far.region)
        assert target.memory == content


def test_a_line_that_falls_silent_in_the_middle_is_given_up_for_the_other(engine: TransferEngine) -> None:
    content = os.urandom(REGION_BYTES)
    with Receiver(REGION_BYTES) as far, Relay(far.address) as quiet, Relay(far.address) as good:
        peer = engine.connect(quiet.address, good.address)
        transfer = peer.submit([Write(engine.register(content), far.region)] * 4)
        wait_until(lambda: quiet.relayed_bytes > MIB, "the first line carries something")
        quiet.fall_silent()
        result = transfer.wait()
        assert result, result
        assert far.ask("sum") == hashlib.sha256(content).hexdigest()
        assert rails_of(peer)[0]["failure_count"] != 0


def test_a_line_that_is_reset_again_and_again_does_not_tear_a_transfer(engine: TransferEngine) -> None:
    content = os.urandom(REGION_BYTES)
    with Receiver(REGION_BYTES) as far, Relay(far.address) as bad, Relay(far.address) as good:
        peer = engine.connect(bad.address, good.address)
        transfer = peer.submit([Write(engine.register(content), far.region)] * 3)
        for _ in range(3):
            seen = bad.relayed_bytes
            wait_until(lambda seen=seen: transfer.done or bad.relayed_bytes > seen, "the bad line carries something")  # type: ignore[misc]
            bad.reset()
        result = transfer.wait()
        assert result, result
        assert far.ask("sum") == hashlib.sha256(content).hexdigest()
