"""One node in a process of its own, clients here: every verb does what it says."""

from __future__ import annotations

import array
import os

import pytest
from native_actors import Bed, get, put, value_of, wait_until

from moonpool import _native as native
from moonpool.types import Reason, Status

pytestmark = pytest.mark.process


def test_what_was_put_is_read_by_another_client_of_either_transport() -> None:
    with Bed() as bed:
        node = bed.node()
        sizes = {"tiny": 1, "small": 4096, "odd": 70_001, "large": 3 << 20}
        values = {key: value_of(key, size) for key, size in sizes.items()}
        assert put(bed.client(), values) == [Status.STORED] * 4
        for shared_memory in (True, False):
            reader = bed.client(shared_memory=shared_memory)
            assert reader.info["transport"] == ("shared_memory" if shared_memory else "socket")
            for key, value in values.items():
                assert get(reader, key, len(value)) == (Status.HIT, Reason.NONE, value)
            views, outcome = reader.get_views([key.encode() for key in values])
            assert outcome.statuses == [Status.HIT] * 4
            assert outcome.byte_count == sum(sizes.values())
            for view, value in zip(views, values.values(), strict=True):
                assert view is not None
                assert view.verify()
                assert bytes(memoryview(view)) == value
                view.release()
        wait_until(lambda: node.status()["table"]["hold_count"] == 0)
        assert put(bed.client(shared_memory=False), {"by socket": values["large"]}) == [Status.STORED]
        assert get(bed.client(), "by socket", 3 << 20)[2] == values["large"]
        node.check_integrity()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_many_small_values_in_one_batch_arrive_whole(shared_memory: bool) -> None:
    # More than is carried in one message where there is shared memory, and a large one among them.
    values = {f"key{number}": value_of(f"key{number}", 4096 - number) for number in range(64)}
    values |= {"large": value_of("large", 200_000), "last": b"last"}
    with Bed() as bed:
        node = bed.node()
        assert put(bed.client(shared_memory=shared_memory), values) == [Status.STORED] * len(values)
        reader = bed.client()
        assert all(get(reader, key, len(value))[2] == value for key, value in values.items())
        node.check_integrity()


def test_the_first_put_of_a_key_wins_and_the_others_learn_it() -> None:
    with Bed() as bed:
        bed.node()
        client = bed.client()
        first = value_of("first", 50_000)
        assert put(client, {"key": first}) == [Status.STORED]
        address, length = native.address_of(first)
        again = client.put([b"key"], [address], [length])
        assert again.statuses == [Status.PRESENT]
        assert (again.lengths, again.checksums) == ([50_000], [native.crc32c(first)])
        assert put(client, {"key": value_of("second", 50_001)}) == [Status.CONFLICT]
        assert get(client, "key", 50_000)[2] == first
        # Twice in one batch: one is stored, the other finds it.
        outcome = client.put([b"twin", b"twin"], [address, address], [length, length])
        assert sorted(outcome.statuses) == [Status.STORED, Status.PRESENT]


def test_vectored_values_and_blocks_of_a_layout_are_gathered_and_scattered_in_order() -> None:
    with Bed() as bed:
        bed.node()
        client = bed.client()
        pieces = [value_of(f"piece{index}", 100 + 37 * index) for index in range(60)]
        places = [native.address_of(piece) for piece in pieces]
        outcome = client.put([b"vector"], [a for a, _ in places], [n for _, n in places], [60])
        assert outcome.statuses == [Status.STORED]
        whole = b"".join(pieces)
        assert get(client, "vector", len(whole))[2] == whole

        layers, blocks, block_bytes = 30, 8, 512
        cache = [bytearray(value_of(f"layer{layer}", blocks * block_bytes)) for layer in range(layers)]
        base = array.array("Q", [native.address_of(layer, writable=True)[0] for layer in cache])
        layout = native.Layout(base, [block_bytes] * layers, [block_bytes] * layers, blocks)
        assert (layout.block_bytes, layout.piece_count, layout.block_count) == (layers * block_bytes, layers, blocks)
        keys = [f"block{number}".encode() for number in (5, 2)]
        assert client.put_blocks(layout, [5, 2], keys).statuses == [Status.STORED] * 2
        before = [bytes(layer) for layer in cache]
        assert client.get_blocks(layout, [0, 7], keys).statuses == [Status.HIT] * 2
        for layer, old in zip(cache, before, strict=True):
            assert layer[:block_bytes] == old[5 * block_bytes : 6 * block_bytes]
            assert layer[7 * block_bytes :] == old[2 * block_bytes : 3 * block_bytes]
            assert layer[block_bytes : 7 * block_bytes] == old[block_bytes : 7 * block_bytes]


def test_remove_pin_why_and_list_say_what_is_true() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        put(client, {f"key{index}": value_of(str(index), 1000) for index in range(5)})
        assert client.exists([b"key1", b"none"]).statuses == [Status.HIT, Status.MISS]
        assert client.pin([b"key1", b"none"]).statuses[0] == Status.DONE
        assert node.status()["table"]["pin_count"] == 1
        assert client.unpin([b"key1"]).statuses == [Status.DONE]
        assert client.remove([b"key2"]).statuses == [Status.DONE]
        assert client.why([b"key1", b"key2", b"none"]).reasons == [Reason.NONE, Reason.REMOVED, Reason.NEVER_STORED]
        cursor, items = client.list(b"key", 0, 100)
        assert cursor == 0
        assert sorted(item["key"] for item in items) == [b"key0", b"key1", b"key3", b"key4"]
        assert client.clear(0) == 4
        assert client.why([b"key1"]).reasons == [Reason.CLEARED]
        assert get(client, "key1", 1000)[:2] == (Status.MISS, Reason.CLEARED)


def test_match_finds_the_longest_prefix_and_no_further() -> None:
    with Bed() as bed:
        bed.node()
        client = bed.client()
        value = value_of("block", 5000)
        address, length = native.address_of(value)
        tags = native.Tags(9, [1, 2, 3], [0, 1, 2])
        assert client.put([b"a", b"b", b"c"], [address] * 3, [length] * 3, tags=tags).statuses == [Status.STORED] * 3
        found = client.match(9, [1, 2, 3, 4], [(0, 1, 0)], timeout_ms=5000)
        assert (found.fetchable, found.reachable, found.warming) == (3, True, False)
        assert found.holders == [("node", client.info["incarnation"], 3, 2)]
        assert client.match(8, [1, 2, 3], [(0, 1, 0)], timeout_ms=5000).fetchable == 0
        orphan = client.put([b"z"], [address], [length], tags=native.Tags(9, [77], [76]))
        assert (orphan.statuses, orphan.reasons) == ([Status.REFUSED], [Reason.NO_PARENT])


def test_a_batch_larger_than_the_segment_is_answered_key_by_key() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        values = {f"key{index}": value_of(str(index), 1 << 20) for index in range(60)}
        statuses = put(client, values)
        assert set(statuses) <= {Status.STORED, Status.NO_ROOM}
        assert statuses[-1] == Status.STORED
        kept = [key for key in values if get(client, key, 1 << 20) == (Status.HIT, Reason.NONE, values[key])]
        assert len(kept) >= 20
        gone = [key.encode() for key in values if key not in kept]
        assert set(client.why(gone).reasons) <= {Reason.EVICTED}
        node.check_integrity()


def test_a_full_node_says_so_for_each_key_and_claims_nothing() -> None:
    """Fault 7: everything pinned, a batch of 1 MB values."""
    with Bed() as bed:
        bed.node(limits={"pinned_bytes": 1 << 40})
        client = bed.client()
        pinned = [f"pinned{index}" for index in range(28)]
        put(client, {key: value_of(key, 1 << 20) for key in pinned})
        assert client.pin([key.encode() for key in pinned]).statuses == [Status.DONE] * 28
        values = {f"key{index}": value_of(str(index), 1 << 20) for index in range(100)}
        for key, status in zip(values, put(client, values), strict=True):
            found = client.exists([key.encode()]).statuses[0]
            assert status in (Status.STORED, Status.NO_ROOM)
            assert status == Status.STORED or found == Status.MISS
        assert client.exists([key.encode() for key in pinned]).statuses == [Status.HIT] * 28


def test_a_value_of_another_length_is_a_miss_and_nothing_is_touched() -> None:
    with Bed() as bed:
        bed.node()
        client = bed.client()
        put(client, {"key": value_of("key", 9000)})
        assert get(client, "key", 9001) == (Status.MISS, Reason.WRONG_LENGTH, bytes(9001))


def test_a_view_keeps_its_bytes_while_the_node_evicts_everything_else() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("kept", 1 << 20)
        put(client, {"kept": value})
        (view,), _ = client.get_views([b"kept"])
        assert view is not None
        shown = memoryview(view)
        for index in range(100):
            put(client, {f"key{index}": value_of(str(index), 1 << 20)})
        client.remove([b"kept"])
        assert bytes(shown) == value
        view.release()
        assert bytes(shown) == value  # the last exporter is not gone yet
        assert node.status()["table"]["hold_count"] == 1
        with pytest.raises(BufferError):
            memoryview(view)
        shown.release()
        wait_until(lambda: node.status()["table"]["hold_count"] == 0)


def test_tenants_find_nothing_of_each_other() -> None:
    """Fault 29: another tenant has no memory, finds no byte and changes none."""
    with Bed() as bed:
        node = bed.node(tenants=["home", "guest"])
        home = bed.client(tenant="home")
        guest = bed.client(tenant="guest")
        assert (home.info["transport"], guest.info["transport"]) == ("shared_memory", "socket")
        value = value_of("key", 100_000)
        address, length = native.address_of(value)
        home.put([b"key"], [address], [length], tags=native.Tags(9, [1], [0]))
        assert get(guest, "key", 100_000)[0] == Status.MISS
        assert guest.exists([b"key"]).statuses == [Status.MISS]
        assert guest.remove([b"key"]).statuses != [Status.DONE]
        assert guest.why([b"key"]).reasons == [Reason.NEVER_STORED]
        assert guest.list(b"", 0, 10) == (0, [])
        assert guest.match(9, [1], [(0, 1, 0)], timeout_ms=5000).fetchable == 0
        assert guest.clear(9) == 0
        assert put(guest, {"key": value_of("other", 5000)}) == [Status.STORED]
        assert get(home, "key", 100_000)[2] == value
        assert guest.clear(0) == -1  # everybody's: refused and counted
        assert guest.stat() is None
        refused = native.NodeClient(bed.node_path, secret=bytes(range(16)), tenant="stranger")
        assert refused.connect(5000)[0] == Reason.ACCESS_DENIED
        counters = node.counters()
        assert counters["denied_clear"] == 1
        assert counters["denied_verb"] == 1
        assert counters["refused_tenant"] == 1
        assert get(home, "key", 100_000)[2] == value


def test_wrong_calls_are_python_errors_before_anything_is_sent() -> None:
    """Fault 30, in one process."""
    with Bed() as bed:
        node = bed.node()
        early = native.NodeClient(bed.node_path, secret=bytes(range(16)))
        with pytest.raises(RuntimeError, match="connect"):
            early.ping()
        client = bed.client()
        buffer = bytearray(100)
        address, _ = native.address_of(buffer, writable=True)
        for addresses, lengths in (
            ([0], [5]),
            ([address], [0]),
            ([address], [2**64 - 1]),
            ([address] * 2, [5] * 2),
            ([], []),
        ):
            with pytest.raises(ValueError):
                client.put([b"key"], addresses, lengths)
        with pytest.raises(ValueError, match="overlap"):
            client.get_into([b"a", b"b"], [address, address + 4], [5, 5])
        with pytest.raises(ValueError, match="past the layout"):
            client.put_blocks(native.Layout([address], [10], [10], 10), [10], [b"key"])
        with pytest.raises(ValueError, match="negative"):
            client.get_into([b"a"], array.array("q", [-1]), [5])
        for wrong in (1, ("a", "b", "c"), (-1, 1, 0), (0, 0, 0), (0, 1 << 16, 0), (0, 1)):
            with pytest.raises(ValueError, match="groups"):
                client.match(1, [1], [wrong])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            client.exists(["text"])  # type: ignore[list-item]
        assert client.exists([b"k" * 1025]).reasons == [Reason.KEY_TOO_LONG]
        assert client.put([b"k" * 1025], [address], [5]).reasons == [Reason.KEY_TOO_LONG]
        large = bytes(17 << 20)
        assert client.put([b"k"], [native.address_of(large)[0]], [17 << 20]).reasons == [Reason.VALUE_TOO_LARGE]
        client.close()
        client.close()
        assert client.closed
        with pytest.raises(RuntimeError, match="closed"):
            client.exists([b"key"])
        assert bytes(buffer) == bytes(100)
        assert node.status()["table"]["stored_total"] == 0


def test_a_forked_child_gets_a_connection_of_its_own() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        value = value_of("key", 100_000)
        put(client, {"key": value})
        (view,), _ = client.get_views([b"key"])
        assert view is not None
        child = os.fork()
        if child == 0:
            wrong = 1
            try:
                read = get(client, "key", 100_000)
                refused = False
                try:
                    memoryview(view)
                except BufferError:
                    refused = True
                del view
                wrong = (
                    0 if read == (Status.HIT, Reason.NONE, value) and refused and client.info["connection"] > 1 else 2
                )
            finally:
                os._exit(wrong)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(memoryview(view)) == value  # the child's end took nothing from its parent
        wait_until(lambda: len(node.status()["connections"]) == 1)
        assert node.status()["table"]["hold_count"] == 1
        assert get(client, "key", 100_000)[2] == value


def test_a_description_is_shown_and_sent_again_after_a_reconnect() -> None:
    with Bed() as bed:
        node = bed.node()
        client = bed.client()
        assert client.describe('{"engine": "A"}')
        assert [one["description"] for one in node.status()["connections"]] == ['{"engine": "A"}']
        node.kill()
        node = bed.node()
        wait_until(client.ping)
        wait_until(lambda: [one["description"] for one in node.status()["connections"]] == ['{"engine": "A"}'])
        assert client.info["reconnect_count"] == 1
