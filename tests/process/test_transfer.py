"""The transfer engine between real processes: bytes, messages, refusals, deadlines, deaths."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from transfer_processes import SECRET, Receiver

from moonpool import (
    AccessDenied,
    ClosedError,
    ConfigError,
    PeerUnavailable,
    Priority,
    Read,
    RemoteRegion,
    TransferEngine,
    TransferPeer,
    UsageError,
    Write,
)
from moonpool.types import Reason

MIB = 1024 * 1024
REGION_BYTES = 8 * MIB
TORN_BYTES = 2_400_000  # fault 1


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(REGION_BYTES) as running:
        yield running


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    with TransferEngine(name="sender", secret=SECRET, timeout_ms=20_000) as made:
        yield made


@pytest.fixture
def peer(engine: TransferEngine, receiver: Receiver) -> TransferPeer:
    return engine.connect(receiver.address)


def test_what_is_written_is_read_back_by_another_process(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    source = os.urandom(REGION_BYTES)
    assert peer.write(engine.register(source), receiver.region)
    assert receiver.ask("sum") == hashlib.sha256(source).hexdigest()
    target = engine.allocate(REGION_BYTES)
    assert peer.read(target, receiver.region)
    assert target.memory == source


def test_a_batch_of_arrays_moves_every_slice_and_sums_it(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    content = os.urandom(64 * 4096)
    source, target = engine.register(content), engine.allocate(64 * 4096)
    offsets = list(range(0, 64 * 4096, 4096))
    random.Random(1).shuffle(offsets)
    addresses = array("Q", [source.address + at for at in range(0, 64 * 4096, 4096)])
    assert peer.run([Write(addresses, receiver.region.at(offsets), 4096)])
    back = peer.run(
        [
            Read(
                array("Q", [target.address + at for at in range(0, 64 * 4096, 4096)]), receiver.region.at(offsets), 4096
            )
        ],
        checksum=True,
    )
    assert back
    assert len(back.checksums) == 64
    assert target.memory == content


def test_a_message_arrives_after_the_bytes_it_speaks_of(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    content = os.urandom(REGION_BYTES)
    receiver.say("receive")
    transfer = peer.submit([Write(engine.register(content), receiver.region)], message=b"all there")
    assert receiver.answer() == ["sender", b"all there".hex()]
    assert receiver.read(REGION_BYTES - 64, 64) == content[-64:]
    assert transfer.wait()


def test_transfers_are_awaited_side_by_side(engine: TransferEngine, peer: TransferPeer, receiver: Receiver) -> None:
    source, target = engine.register(os.urandom(REGION_BYTES)), engine.allocate(REGION_BYTES)

    async def move() -> None:
        part = REGION_BYTES // 8
        writes = [
            peer.submit([Write(source.at(at), receiver.region.at(at), part)], priority=Priority.BULK)
            for at in range(0, REGION_BYTES, part)
        ]
        assert all(await asyncio.gather(*writes))
        reads = [
            peer.submit([Read(target.at(at), receiver.region.at(at), part)], priority=Priority.LATENCY)
            for at in range(0, REGION_BYTES, part)
        ]
        assert all(await asyncio.gather(*reads))

    asyncio.run(move())
    assert target.memory == source.memory


def test_a_message_is_awaited(engine: TransferEngine) -> None:
    with TransferEngine(name="other", secret=SECRET) as other:
        peer = other.connect(*engine.listen())
        region = engine.allocate(4096)

        async def talk() -> bytes:
            waiting = asyncio.ensure_future(engine.next_message())
            await asyncio.sleep(0)
            local = other.allocate(4096)
            assert await peer.submit([Write(local, RemoteRegion.from_bytes(region.descriptor))], message=b"hello")
            return (await waiting).content

        assert asyncio.run(talk()) == b"hello"


# Fault 1 -------------------------------------------------------------------------------------------------------------


def test_a_write_to_a_stopped_receiver_is_never_done_before_it_is_applied(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    source = engine.register(os.urandom(TORN_BYTES))
    assert peer.write(source, receiver.region)  # the connection is warm
    changed = engine.register(os.urandom(TORN_BYTES))
    receiver.signal(signal.SIGSTOP)
    waiting = peer.submit([Write(changed, receiver.region)], timeout_ms=60_000)
    late = peer.submit([Write(source, receiver.region)], timeout_ms=300)
    result = late.wait()
    assert result is not None
    assert result.reason is Reason.TIMED_OUT
    assert not waiting.done
    receiver.signal(signal.SIGCONT)
    assert waiting.wait()
    assert receiver.read(0, TORN_BYTES) == bytes(changed.memory)


def test_400_writes_are_whole_when_they_are_done(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    contents = [os.urandom(TORN_BYTES) for _ in range(4)]
    sources = [engine.register(content) for content in contents]
    sums = [hashlib.sha256(content + bytes(REGION_BYTES - TORN_BYTES)).hexdigest() for content in contents]
    for number in range(400):
        assert peer.write(sources[number % 4], receiver.region)
        if number % 8 == 0:
            assert receiver.ask("sum") == sums[number % 4], f"round {number}"
        else:
            assert receiver.read(TORN_BYTES - 32, 32) == contents[number % 4][-32:], f"round {number}"


def test_a_receiver_that_dies_under_a_write_fails_it_at_once(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    source = engine.register(bytes(REGION_BYTES))
    receiver.signal(signal.SIGSTOP)
    transfer = peer.submit([Write(source, receiver.region)], timeout_ms=60_000)
    receiver.kill()
    result = transfer.wait(30_000)
    assert result is not None
    assert result.reason is Reason.UNAVAILABLE
    assert peer.probe() is Reason.UNAVAILABLE


# Fault 3 -------------------------------------------------------------------------------------------------------------


def test_20000_transfers_use_one_connection_and_go_on_after_a_restart(engine: TransferEngine) -> None:
    source = engine.register(os.urandom(4096))
    with Receiver(4096) as first:
        address, peer = first.address, engine.connect(first.address)
        for _ in range(2_000):
            batch = [peer.submit([Write(source, first.region)]) for _ in range(10)]
            assert all(transfer.wait() for transfer in batch)
        assert sockets_of(address) < 100
    with Receiver(4096, address) as second:
        tries = [peer.write(source, second.region) for _ in range(2)]
        assert tries[1], "one retry at most"
        assert second.read(0, 4096) == bytes(source.memory)
    assert sockets_of(address) < 100


def sockets_of(address: str) -> int:
    """Sockets of any state whose one end has this port, as the kernel lists them."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(port in line.split()[1] or port in line.split()[2] for line in lines)


# Fault 30 ------------------------------------------------------------------------------------------------------------


def test_calls_out_of_order_are_clear_errors(receiver: Receiver) -> None:
    engine = TransferEngine(secret=SECRET)
    local = engine.allocate(4096)
    peer = engine.connect(receiver.address)
    peer.close()
    peer.close()
    with pytest.raises(ClosedError):
        peer.write(local, receiver.region, 4096)
    engine.close()
    engine.close()
    for call in (
        lambda: engine.register(bytearray(8)),
        lambda: engine.allocate(8),
        lambda: engine.unregister(local),
        engine.listen,
        lambda: engine.connect(receiver.address),
        lambda: engine.receive(timeout_ms=0),
        engine.status,
    ):
        with pytest.raises(ClosedError):
            call()


def test_memory_outside_its_region_is_refused_before_a_byte_moves(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    before = receiver.ask("sum")
    local = engine.register(b"\xff" * 8192)
    wrong: list[tuple[object, object, object]] = [
        (0, receiver.region, 16),
        (b"\xff" * 64, receiver.region, None),  # registered nowhere
        (local.address - 16, receiver.region, 32),
        (local.address, receiver.region, 8193),
        (local.address, receiver.region.at(REGION_BYTES - 8), 16),
        (local.address, receiver.region.at(2**64 - 8), 16),
        (local.address, receiver.region.at(2**64), 16),
        (local.address, receiver.region.at(-1), 16),
        (local.address, receiver.region, -1),
        (local.address + 8192, receiver.region, 1),
        ([local.address, 2**64 - 4], receiver.region.at([0, 0]), [8, 8]),
    ]
    for place, remote, length in wrong:
        with pytest.raises(UsageError):
            peer.write(place, remote, length)  # type: ignore[arg-type]
    assert receiver.ask("sum") == before


def test_registering_what_cannot_be_registered_is_an_error(engine: TransferEngine) -> None:
    memory = bytearray(8192)
    region = engine.register(memory)
    for wrong in (b"", (0, 16), (2**64 - 4, 16), memoryview(memory)[4096:], (region.address - 8, 16), "text"):
        with pytest.raises(UsageError):
            engine.register(wrong)
    with pytest.raises(UsageError):
        engine.register(bytes(16), writable=True)
    with pytest.raises(UsageError):
        engine.register(bytearray(16), location="cuda:0")
    assert engine.unregister(region)
    with pytest.raises(UsageError):
        engine.unregister(region)
    assert engine.unregister(engine.register(memory))


def test_a_forked_child_is_refused_and_its_parent_goes_on(
    engine: TransferEngine, peer: TransferPeer, receiver: Receiver
) -> None:
    source = engine.register(os.urandom(4096))
    assert peer.write(source, receiver.region)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            peer.write(source, receiver.region)
        except UsageError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert peer.write(source, receiver.region)


def test_nobody_listening_fails_in_bounded_time(engine: TransferEngine, receiver: Receiver) -> None:
    address = receiver.address
    receiver.kill()
    with pytest.raises(PeerUnavailable):
        engine.connect(address)
    for text in ("nowhere", "127.0.0.1", "127.0.0.1:0", ":80", "127.0.0.1:http"):
        with pytest.raises(UsageError):
            engine.connect(text)


def test_another_secret_is_refused(receiver: Receiver) -> None:
    with TransferEngine(secret=b"another") as stranger, pytest.raises(AccessDenied):
        stranger.connect(receiver.address)


def test_listening_beyond_loopback_needs_a_secret_of_its_own(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("MOONPOOL_RUNTIME_FOLDER", str(folder))
    with TransferEngine() as engine, pytest.raises(ConfigError) as refused:
        engine.listen("0.0.0.0:0")
    assert refused.value.kind == "insecure_listen"
    with TransferEngine(secret=SECRET) as engine:
        assert engine.listen("0.0.0.0:0")


def test_rights_and_tokens_are_checked_by_the_owner(engine: TransferEngine) -> None:
    memory = bytearray(os.urandom(4096))
    before = bytes(memory)
    with TransferEngine(secret=SECRET) as owner:
        region = owner.register(memory)
        peer = engine.connect(*owner.listen())
        local = engine.register(bytearray(4096), writable=True)
        honest = RemoteRegion.from_bytes(region.descriptor)
        with pytest.raises(UsageError):
            peer.write(local, honest)
        lying = RemoteRegion(honest.token, 1 << 40, writable=True)
        assert peer.write(local, lying).reason is Reason.READ_ONLY
        assert peer.read(local, lying.at(4090), 16).reason is Reason.OUT_OF_RANGE
        assert peer.read(local, lying.at(2**39), 16).reason is Reason.OUT_OF_RANGE
        guessed = RemoteRegion(bytes(16), 4096, writable=True)
        assert peer.write(local, guessed).reason is Reason.UNKNOWN_REGION
        assert memory == before
        assert peer.read(local, honest)
        assert local.memory == before
        owner.unregister(region)
        assert peer.read(local, honest).reason is Reason.UNKNOWN_REGION


def test_a_descriptor_survives_the_wire_and_a_damaged_one_is_refused(engine: TransferEngine) -> None:
    descriptor = engine.allocate(4096).descriptor
    assert RemoteRegion.from_bytes(descriptor).to_bytes() == descriptor
    for damaged in (b"", descriptor[:-1], descriptor + b"x", b"XXXX" + descriptor[4:], descriptor[:4] + b"\x09"):
        with pytest.raises(UsageError):
            RemoteRegion.from_bytes(damaged)


def test_memory_is_kept_while_a_stopped_peer_is_inside(engine: TransferEngine) -> None:
    """The engine's own region is in use by a transfer that cannot go on."""
    with Receiver(REGION_BYTES) as receiver:
        peer = engine.connect(receiver.address)
        source = engine.register(bytes(REGION_BYTES))
        receiver.signal(signal.SIGSTOP)
        transfer = peer.submit([Write(source, receiver.region)], timeout_ms=60_000)
        assert not engine.unregister(source, timeout_ms=50)
        assert engine.status()["leaving_region_count"] == 1
        receiver.signal(signal.SIGCONT)
        assert transfer.wait()
        assert engine.status()["leaving_region_count"] == 0
