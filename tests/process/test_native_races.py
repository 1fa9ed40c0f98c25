"""Many processes at once: one key, one segment, no torn and no foreign byte."""

from __future__ import annotations

import pytest
from native_actors import Bed, get, put, value_of, wait_until

from moonpool.types import Reason, Status

pytestmark = pytest.mark.process

MIB = 1 << 20


def test_of_sixteen_writers_of_one_key_one_wins_and_the_others_learn_it() -> None:
    """Fault 5."""
    rounds, writers = 100, 16
    source = f"""
me = hear()
client = client_at(PATH)
mine = [value_of(f"{{me}}.{{number}}", 1_000_000) for number in range({rounds})]
tell("ready")
hear()
statuses = []
for number, value in enumerate(mine):
    address, length = native.address_of(value)
    statuses.append(client.put([f"key{{number}}".encode()], [address], [length]).statuses[0])
    found = client.exists([f"key{{number}}".encode()]).statuses[0]
    assert found == 5, "it was there and is not"
tell(statuses)
hear()
"""
    with Bed() as bed:
        node = bed.node(segment_bytes=256 * MIB, arena_bytes=64 * MIB)
        actors = [bed.actor(source) for _ in range(writers)]
        for me, actor in enumerate(actors):
            assert actor.ask(me) == "ready"
        for actor in actors:
            actor.tell("go")
        statuses = [actor.hear() for actor in actors]
        reader = bed.client()
        for number in range(rounds):
            of_round = [one[number] for one in statuses]
            assert of_round.count(Status.STORED) == 1
            assert set(of_round) <= {Status.STORED, Status.PRESENT, Status.CONFLICT}
            winner = of_round.index(Status.STORED)
            assert get(reader, f"key{number}", 1_000_000)[2] == value_of(f"{winner}.{number}", 1_000_000)
        node.check_integrity()
        assert node.status()["table"]["reserved_bytes"] == 0


def test_readers_get_the_right_bytes_or_a_miss_while_the_space_is_used_again_at_full_speed() -> None:
    """Fault 12: copies, views and socket reads while the segment turns over."""
    source = """
transport, verb = hear()
client = client_at(PATH, shared_memory=transport == "shared")
random = random.Random(verb + transport)
tell("ready")
hear()
hits = misses = 0
buffer = bytearray(300_000)
address, _ = native.address_of(buffer, True)
while hits + misses < 2_000:
    number = random.randrange(120)
    key, length = f"key{number}", 200_000 + number
    expected = number % 256
    if verb == "copy":
        outcome = client.get_into([key.encode()], [address], [length])
        hit = outcome.statuses[0] == 5
        found = memoryview(buffer)[:length]
    else:
        (view,), outcome = client.get_views([key.encode()])
        hit = view is not None
        found = memoryview(view) if hit else b""
    # evicted, not committed yet, or the hold was taken back in the middle
    assert outcome.reasons[0] in (0, 1, 2, 7, 13, 14), outcome.reasons
    if hit:
        assert found == bytes([expected]) * length, "foreign bytes"
        found.release()
    hits, misses = hits + hit, misses + (not hit)
tell([hits, misses])
hear()
"""
    with Bed() as bed:
        node = bed.node(segment_bytes=16 * MIB, arena_bytes=8 * MIB, limits={"copy_hold_ms": 1})
        kinds = [("shared", "copy"), ("shared", "view"), ("socket", "copy"), ("socket", "view")]
        readers = [bed.actor(source) for _ in kinds]
        for kind, reader in zip(kinds, readers, strict=True):
            assert reader.ask(kind) == "ready"
        writer = bed.actor(
            "client = client_at(PATH)\n"
            "values = [bytes([number % 256]) * (200_000 + number) for number in range(120)]\n"
            "places = [native.address_of(value) for value in values]\n"
            "tell('ready')\n"
            "stop = threading.Event()\n"
            "threading.Thread(target=lambda: (hear(), stop.set()), daemon=True).start()\n"
            "order = list(range(120))\n"
            "while not stop.is_set():\n"
            "    random.shuffle(order)\n"
            "    for number in order:\n"
            "        client.put([f'key{number}'.encode()], [places[number][0]], [places[number][1]])\n"
            "tell('done')\n"
        )
        assert writer.hear() == "ready"
        for reader in readers:
            reader.tell("go")
        hits = [reader.hear()[0] for reader in readers]
        assert writer.ask("stop") == "done"
        assert all(count > 0 for count in hits), hits
        assert node.status()["table"]["evicted_total"] > 1000
        for reader in readers:
            reader.kill()
        wait_until(lambda: node.status()["table"]["hold_count"] == 0)
        node.check_integrity()


def test_a_chain_is_never_without_its_parent() -> None:
    """Fault 9: blocks of chains under pressure; a child never outlives its parent on the node."""
    with Bed() as bed:
        node = bed.node(segment_bytes=16 * MIB, arena_bytes=8 * MIB)
        actor = bed.actor("""
client = client_at(PATH)
value = bytes(150_000)
address, length = native.address_of(value)
random = random.Random(7)
for round in range(300):
    chain = random.randrange(40)
    hashes = [chain * 100 + depth for depth in range(1, 9)]
    tags = native.Tags(5, hashes, [0, *hashes[:-1]])
    client.put([f"{one}".encode() for one in hashes], [address] * 8, [length] * 8, tags=tags)
    chain = random.randrange(40)
    hashes = [chain * 100 + depth for depth in range(1, 9)]
    found = client.exists([f"{one}".encode() for one in hashes]).statuses
    prefix = found.index(6) if 6 in found else 8
    assert 5 not in found[prefix:], f"a hole: {found}"
    assert client.match(5, hashes, [(0, 1, 0)], timeout_ms=5000).fetchable == prefix
tell("done")
hear()
""")
        assert actor.hear() == "done"
        node.check_integrity()


def test_existence_checks_hold_nothing_and_protect_nothing() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        keys = [f"key{index}" for index in range(28)]
        put(client, {key: value_of(key, MIB) for key in keys})
        for _ in range(50):
            client.exists([keys[0].encode()] * 100)
        assert node.status()["table"]["hold_count"] == 0
        put(client, {f"new{index}": value_of(str(index), MIB) for index in range(10)})
        assert client.why([keys[0].encode()]).reasons == [Reason.EVICTED]
