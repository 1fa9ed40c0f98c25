"""What a member that knows the secret may do over rails: what it was granted, while it is granted, and nothing else."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import raw_rail
from raw_peer import ABORT, RELEASE, REPLY, RawPeer
from raw_rail import DATA, DONE, FAILED, RawRail
from remote_cluster import MIB, address_of, counters, figures, listening

from moonpool import Pool, Reason, Status, _native
from moonpool.testing.cluster import Cluster, value_of, wait_until

LENGTH = 256 * 1024
VALUE = value_of("a", LENGTH)


@pytest.fixture
def serving(folder: Path) -> Iterator[Cluster]:
    with listening(folder, **{"node.limits.remote_silent_ms": 60_000}) as running:
        yield running


@pytest.fixture
def local(serving: Cluster) -> Iterator[Pool]:
    with serving.connect() as pool:
        assert pool.put({"a": VALUE})["a"]
        yield pool


@pytest.fixture
def peer(serving: Cluster) -> Iterator[RawPeer]:
    made = RawPeer(address_of(serving), serving.secret)
    yield made
    made.socket.close()


@pytest.fixture
def rail(serving: Cluster) -> Iterator[RawRail]:
    made = RawRail(address_of(serving), serving.secret)
    yield made
    made.close()


def held(peer: RawPeer) -> tuple[int, bytes]:
    """(generation, token) of a hold on "a"."""
    found = peer.hold([b"a"])[0]
    assert found.status == Status.HIT
    return found.generation, peer.grants[0]


def reserved(peer: RawPeer, key: bytes = b"b") -> tuple[int, bytes]:
    found = peer.reserve([key], LENGTH)[0]
    assert found.status == Status.STORED
    return found.generation, peer.grants[0]


def generations(peer: RawPeer, message: int, *numbers: int) -> None:
    payload = struct.pack("<QI", peer.incarnation, len(numbers)) + struct.pack(f"<{len(numbers)}Q", *numbers)
    peer.send(message, payload)
    if message == ABORT:
        assert peer.receive()[0] == ABORT | REPLY


def test_a_hold_is_read_and_a_reservation_written_over_a_rail(local: Pool, peer: RawPeer, rail: RawRail) -> None:
    _, token = held(peer)
    answer = rail.read(token, 100, 1000)
    assert (answer.kind, answer.payload) == (DATA, VALUE[100:1100])
    generation, token = reserved(peer)
    content = value_of("b", LENGTH)
    assert rail.write(token, 0, content[:1000]).kind == DONE
    assert rail.write(token, 1000, content[1000:]).kind == DONE
    assert peer.commit([(generation, _native.crc32c(content))])[0].status == Status.STORED
    assert local.get_bytes(["b"]) == [content]


def test_nothing_says_where_in_the_segment_a_value_lies(local: Pool, peer: RawPeer) -> None:
    found = peer.hold([b"a"])[0]
    place = peer.reserve([b"b"], LENGTH)[0]
    assert (found.arena, found.offset, place.arena, place.offset) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "length", "reason"),
    [
        (LENGTH, 1, Reason.OUT_OF_RANGE),
        (LENGTH - 1, 2, Reason.OUT_OF_RANGE),
        (2**64 - 1, 2, Reason.OUT_OF_RANGE),
        (2**64 - LENGTH, LENGTH, Reason.OUT_OF_RANGE),
        (1, 2**20, Reason.OUT_OF_RANGE),
    ],
)
def test_no_slice_reaches_past_its_grant(
    local: Pool, peer: RawPeer, rail: RawRail, offset: int, length: int, reason: Reason
) -> None:
    _, token = held(peer)
    answer = rail.read(token, offset, length)
    assert (answer.kind, answer.reason) == (FAILED, reason)
    _, place = reserved(peer)
    if length <= LENGTH:
        answer = rail.write(place, offset, bytes(length))
        assert (answer.kind, answer.reason) == (FAILED, reason)
    assert local.get_bytes(["a"]) == [VALUE]


def test_what_is_held_cannot_be_written_nor_what_is_reserved_be_read(local: Pool, peer: RawPeer, rail: RawRail) -> None:
    _, token = held(peer)
    assert rail.write(token, 0, b"mine").reason == Reason.READ_ONLY
    _, place = reserved(peer)
    assert rail.read(place, 0, 4).reason == Reason.READ_ONLY
    assert local.get_bytes(["a"]) == [VALUE]


def test_tokens_cannot_be_guessed_from_others(local: Pool, peer: RawPeer, rail: RawRail) -> None:
    seed = int.from_bytes(os.urandom(8))
    print(f"seed {seed}")
    chance = random.Random(seed)
    tokens = [held(peer)[1], *(reserved(peer, b"r%d" % number)[1] for number in range(8))]
    known = set(tokens)
    guesses = [chance.randbytes(16) for _ in range(500)]
    for token in tokens:
        guesses += [(int.from_bytes(token) ^ 1 << bit).to_bytes(16) for bit in range(128)]
        guesses += [((int.from_bytes(token, "little") + step) % 2**128).to_bytes(16, "little") for step in (-1, 1)]
    guesses += [bytes(16), b"\xff" * 16]
    denied = counters(local)["grants_denied_total"]
    tried = [guess for guess in guesses if guess not in known]
    for guess in tried:
        assert rail.read(guess, 0, 16).reason == Reason.UNKNOWN_REGION
        assert rail.write(guess, 0, b"mine").reason == Reason.UNKNOWN_REGION
    assert counters(local)["grants_denied_total"] == denied + 2 * len(tried)
    assert local.get_bytes(["a"]) == [VALUE]


def test_a_grant_ends_with_what_it_was_given_for(serving: Cluster, local: Pool, peer: RawPeer, rail: RawRail) -> None:
    generation, token = held(peer)
    generations(peer, RELEASE, generation)
    wait_until(lambda: figures(local)["hold_count"] == 0, "the release to be seen")
    assert rail.read(token, 0, 16).reason == Reason.UNKNOWN_REGION
    generation, token = reserved(peer)
    generations(peer, ABORT, generation)
    assert rail.write(token, 0, b"mine").reason == Reason.UNKNOWN_REGION
    content = value_of("c", LENGTH)
    generation, token = reserved(peer, b"c")
    assert rail.write(token, 0, content).kind == DONE
    assert peer.commit([(generation, _native.crc32c(content))])[0].status == Status.STORED
    assert rail.write(token, 0, b"late").reason == Reason.UNKNOWN_REGION
    other = RawPeer(address_of(serving), serving.secret)
    _, token = held(other)
    other.socket.close()
    wait_until(lambda: figures(local)["hold_count"] == 0, "the closed connection's hold to end")
    assert rail.read(token, 0, 16).reason == Reason.UNKNOWN_REGION
    assert local.get_bytes(["a", "c"]) == [VALUE, content]


def test_generations_of_others_are_refused(serving: Cluster, local: Pool, peer: RawPeer) -> None:
    other = RawPeer(address_of(serving), serving.secret)
    generation, _ = reserved(peer)
    held_generation, _ = held(peer)
    for guess in (generation, held_generation, generation + 1, 0, 2**64 - 1):
        assert other.commit([(guess, 0)])[0].status == Status.REFUSED
        generations(other, ABORT, guess)
        generations(other, RELEASE, guess)
    assert figures(local)["hold_count"] == 1
    assert figures(local)["reservation_count"] == 1
    other.socket.close()


def test_a_commit_while_its_own_rail_still_writes_is_refused_and_never_seen(
    local: Pool, peer: RawPeer, rail: RawRail
) -> None:
    generation, token = reserved(peer)
    rail.socket.sendall(raw_rail.request(raw_rail.WRITE, token, 0, LENGTH) + bytes(LENGTH // 2))
    wait_until(lambda: counters(local)["grants_inside"] == 1, "the slice to be under way")
    assert peer.commit([(generation, 0)])[0].status == Status.REFUSED
    assert local.get_bytes(["b"]) == [None]
    assert figures(local)["reserved_bytes"] >= LENGTH  # somebody is still inside
    rail.socket.sendall(bytes(LENGTH - LENGTH // 2))
    assert rail.answer().kind == DONE
    wait_until(lambda: figures(local)["reservation_count"] == 0, "the space to be free when the rail has left")
    assert local.get_bytes(["b"]) == [None]


def test_space_that_a_rail_is_inside_of_is_not_reused(serving: Cluster, local: Pool, rail: RawRail) -> None:
    """The writer's connection ends while its rail is in the middle of a slice."""
    other = RawPeer(address_of(serving), serving.secret)
    _, token = reserved(other)
    rail.socket.sendall(raw_rail.request(raw_rail.WRITE, token, 0, LENGTH) + b"\xee" * (LENGTH // 2))
    wait_until(lambda: counters(local)["grants_inside"] == 1, "the slice to be under way")
    other.socket.close()
    wait_until(lambda: figures(local)["quarantined_bytes"] >= LENGTH, "the space to be quarantined")
    fillers = {f"f{number}": value_of(f"f{number}", MIB) for number in range(80)}
    local.put(fillers)  # all of the segment is used again, but for this
    rail.socket.sendall(b"\xee" * (LENGTH - LENGTH // 2))
    assert rail.answer().kind == DONE
    wait_until(lambda: figures(local)["quarantined_bytes"] == 0, "the space to be free when the rail has left")
    here = [key for key, found in zip(fillers, local.exists(list(fillers)), strict=True) if found]
    assert here
    assert local.get_bytes(here) == [fillers[key] for key in here]


def test_a_rail_that_stops_in_a_slice_does_not_keep_its_space_for_ever(folder: Path) -> None:
    with listening(folder, **{"node.limits.rail_silent_ms": 500}) as cluster, cluster.connect() as local:
        peer = RawPeer(address_of(cluster), cluster.secret)
        rail = RawRail(address_of(cluster), cluster.secret)
        _, token = reserved(peer)
        rail.socket.sendall(raw_rail.request(raw_rail.WRITE, token, 0, LENGTH) + bytes(100))
        peer.socket.close()
        wait_until(lambda: figures(local)["used_bytes"] == 0, "the space to be back")
        rail.close()
