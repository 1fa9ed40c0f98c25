"""The native object table against its model, step by step."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.object_table import ObjectTableModel
from models.table_records import Answer, Limits, Put, Thing, Unit, space_bytes
from moonpool._native import ObjectTable
from moonpool.types import Reason, Status

CONNECTIONS = st.integers(1, 3)
PLACE_BYTES = space_bytes(100)


@functools.cache
def digest_of(tenant_id: int, key: bytes) -> bytes:
    """What the events of the native table call this object."""
    table = ObjectTable([1 << 12], {})
    reserved = table.reserve(key, 0, 1, 0, tenant_id=tenant_id)
    table.commit(1, reserved["generation"], 0, 0)
    digest: bytes = table.take_events()[0]["digest"]
    return digest


def plain_puts() -> st.SearchStrategy[Put]:
    return st.builds(Put, st.sampled_from([b"a", b"b", b"c", b"d"]), tenant_id=st.sampled_from([0, 7]))


def bundle_puts() -> st.SearchStrategy[Put]:
    def build(bundle_id: int, member: int, bundle_count: int) -> Put:
        return Put(b"bundle%d/%d" % (bundle_id, member), bundle_id=bundle_id, bundle_count=bundle_count)

    return st.builds(build, st.integers(1, 2), st.integers(0, 2), st.sampled_from([2, 2, 2, 1, 3]))


def block_puts() -> st.SearchStrategy[Put]:
    """Blocks of a binary tree: 1 is the root, the parent of n is n // 2. Namespace 2 has two shards a block."""

    def build(namespace_id: int, block_hash: int, kv_group: int, shard_index: int, key_suffix: bytes) -> Put:
        shard_count = namespace_id
        key = b"block%d/%d/%d/%d%s" % (namespace_id, kv_group, block_hash, shard_index % shard_count, key_suffix)
        return Put(
            key,
            namespace_id=namespace_id,
            block_hash=block_hash,
            parent_hash=block_hash // 2,
            kv_group=kv_group,
            chained=kv_group == 0,
            shard_index=shard_index % shard_count,
            shard_count=shard_count,
            bundle_count=shard_count,
        )

    suffixes = st.sampled_from([b""] * 15 + [b"/other key"])
    return st.builds(
        build, st.integers(1, 2), st.integers(1, 7), st.sampled_from([0, 0, 0, 1]), st.integers(0, 1), suffixes
    )


@st.composite
def puts(draw: st.DrawFn) -> Put:
    put = draw(st.one_of(plain_puts(), bundle_puts(), block_puts(), block_puts()))
    changes: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        changes["keep_at_least_ms"] = draw(st.sampled_from([0, 20, 200]))
        changes["keep_at_most_ms"] = draw(st.sampled_from([0, 30, 300]))
        changes["priority"] = draw(st.sampled_from([0, 1, 200, 255]))
    if draw(st.integers(0, 19)) == 0:  # something that does not fit together
        name = draw(
            st.sampled_from(["parent_hash", "bundle_count", "shard_count", "shard_index", "block_hash", "chained"])
        )
        changes[name] = draw(st.integers(0, 3)) if name != "chained" else not put.chained
    return dataclasses.replace(put, **changes)


class TableMachine(RuleBasedStateMachine):
    """Objects of one size, so that the model knows when there is room; see MixedSizesMachine for the rest."""

    lengths = st.just(100)

    @initialize(
        arenas=st.lists(st.integers(1, 6), min_size=1, max_size=3),
        object_count_max=st.sampled_from([8, 1000]),
        caps=st.sampled_from([(1000, 1000), (4, 3)]),
    )
    def start(self, arenas: list[int], object_count_max: int, caps: tuple[int, int]) -> None:
        self.place_count = sum(arenas)
        limits = Limits(
            object_count_max=object_count_max,
            held_bytes=caps[0] * PLACE_BYTES,
            reserved_bytes=caps[1] * PLACE_BYTES,
            pinned_bytes=caps[1] * PLACE_BYTES,
            holds=caps[0] + 2,
            reservations=caps[1] + 2,
        )
        self.native = ObjectTable(
            [count * PLACE_BYTES for count in arenas],
            {
                "object_count_max": limits.object_count_max,
                "held_bytes_per_connection_max": limits.held_bytes,
                "reserved_bytes_per_connection_max": limits.reserved_bytes,
                "pinned_bytes_max": limits.pinned_bytes,
                "holds_per_connection_max": limits.holds,
                "reservations_per_connection_max": limits.reservations,
            },
        )
        self.model = ObjectTableModel(max(arenas) * PLACE_BYTES, limits)
        self.now_ms = 1
        self.told: dict[bytes, dict[str, Any]] = {}  # what a directory would believe after the events so far
        self.generations: list[int] = []

    # Puts ---------------------------------------------------------------------------------------------------

    @rule(put=puts(), connection=CONNECTIONS, data=st.data(), arena=st.integers(0, 3))
    def reserve(self, put: Put, connection: int, data: st.DataObject, arena: int) -> None:
        self.reserve_one(dataclasses.replace(put, length=data.draw(self.lengths)), connection, arena)

    @rule(path=st.integers(1, 7), namespace_id=st.integers(1, 2), connection=CONNECTIONS)
    def put_chain(self, path: int, namespace_id: int, connection: int) -> None:
        """Reserves a whole path of blocks with all its shards in one go, parents first, and commits it."""
        hashes = [path >> shift for shift in range(path.bit_length() - 1, -1, -1)]
        reserved = []
        for block_hash in hashes:
            for shard in range(namespace_id):
                key = b"block%d/0/%d/%d" % (namespace_id, block_hash, shard)
                put = Put(key, 100, 0, namespace_id, block_hash, block_hash // 2, shard, namespace_id, namespace_id)
                reserved.append(self.reserve_one(put, connection, 0))
        for generation in reserved:
            if generation:
                self.commit_one(connection, generation, 1)

    def reserve_one(self, put: Put, connection: int, arena: int) -> int:
        evicted_before = self.native.stats()["evicted_total"]
        options = {k: v for k, v in dataclasses.asdict(put).items() if k not in ("key", "length")}
        result = self.native.reserve(put.key, put.length, connection, self.now_ms, arena_preferred=arena, **options)
        evicted_count = self.native.stats()["evicted_total"] - evicted_before
        expected = self.model.reserve(put, connection, self.now_ms)
        if not isinstance(expected, Unit):
            assert self.answer(result) == expected
            assert evicted_count == 0
            return 0
        assert result["status"] in (Status.STORED, Status.NO_ROOM), result
        self.check_need(evicted_count, result)
        thing = None
        if result["status"] == Status.STORED:
            thing = Thing(put, connection, result["generation"], self.now_ms, expected)
            assert result["generation"] not in self.generations, "a generation was used twice"
            self.generations.append(result["generation"])
        self.model.joined(put, expected, thing, evicted_count, self.now_ms)
        return int(result["generation"])

    def check_need(self, evicted_count: int, result: dict[str, Any]) -> None:
        """Nothing is evicted while there is room; and no unit more than needed."""
        place_count = min(self.place_count, self.model.limits.object_count_max)
        if len(self.model.things) < place_count:
            assert (result["status"], evicted_count) == (Status.STORED, 0)
        elif result["status"] == Status.STORED:
            assert evicted_count > 0

    @precondition(lambda self: self.generations)
    @rule(data=st.data(), connection=CONNECTIONS, checksum=st.integers(0, 1), own=st.integers(0, 9))
    def commit(self, data: st.DataObject, connection: int, checksum: int, own: int) -> None:
        generation, writer = self.some_reservation(data)
        self.commit_one(writer if own else connection, generation, checksum)

    def commit_one(self, connection: int, generation: int, checksum: int) -> None:
        result = self.native.commit(connection, generation, checksum, self.now_ms)
        identity = getattr(self.model.by_generation(generation), "identity", None)
        expected = self.model.commit(connection, generation, checksum, self.now_ms)
        assert self.answer(result) == expected
        if expected[0] in (Status.STORED, Status.PRESENT, Status.CONFLICT):
            resident = self.model.resident(identity)
            assert (result["generation"], result["present_checksum"], result["present_length"]) == (
                resident.generation,
                resident.checksum,
                resident.put.length,
            )

    @precondition(lambda self: self.generations)
    @rule(data=st.data(), connection=CONNECTIONS, own=st.integers(0, 9))
    def abort(self, data: st.DataObject, connection: int, own: int) -> None:
        generation, writer = self.some_reservation(data)
        connection = writer if own else connection
        assert self.answer(self.native.abort(connection, generation)) == self.model.abort(connection, generation)

    def some_reservation(self, data: st.DataObject) -> tuple[int, int]:
        """Mostly an open one with its writer, now and then any generation there ever was."""
        open_ones = [(t.generation, t.writer) for t in self.model.things if t.stage in ("reserved", "detached")]
        if open_ones and data.draw(st.integers(0, 9)):
            return data.draw(st.sampled_from(open_ones))
        return data.draw(st.sampled_from(self.generations)), data.draw(CONNECTIONS)

    @rule(age_ms=st.integers(0, 50))
    def quarantine_reservations(self, age_ms: int) -> None:
        before_ms = max(0, self.now_ms - age_ms)
        self.native.quarantine_reservations_older_than(before_ms)
        self.model.detach([t for t in self.model.things if t.reserved_ms < before_ms], Reason.DEADLINE)

    @rule(connection=CONNECTIONS)
    def quarantine_connection(self, connection: int) -> None:
        self.native.quarantine_connection(connection)
        self.model.detach([t for t in self.model.things if t.writer == connection], Reason.DEADLINE)

    # Reads --------------------------------------------------------------------------------------------------

    def some_identity(self, data: st.DataObject) -> tuple[int, bytes]:
        known = [thing.identity for thing in self.model.things]
        if known and data.draw(st.integers(0, 4)):
            return data.draw(st.sampled_from(known))
        put = data.draw(puts())
        return put.tenant_id, put.key

    @rule(data=st.data(), connection=CONNECTIONS, copy=st.booleans())
    def hold(self, data: st.DataObject, connection: int, copy: bool) -> None:
        tenant_id, key = self.some_identity(data)
        self.now_ms += 1  # so that no two deadlines are equal and the order of revoking is known
        deadline_ms = self.now_ms + 40 if copy else 0
        result = self.native.hold(key, connection, deadline_ms, self.now_ms, tenant_id)
        self.check_read(result, self.model.hold((tenant_id, key), connection, deadline_ms, self.now_ms))

    def check_read(self, result: dict[str, Any], expected: Thing | Reason) -> None:
        if isinstance(expected, Reason):
            assert self.answer(result) == (Status.MISS, expected)
        else:
            assert self.answer(result) == (Status.HIT, Reason.NONE)
            assert result["generation"] == expected.generation
            assert (result["extent"]["length"], result["checksum"]) == (expected.put.length, expected.checksum)

    @precondition(lambda self: self.generations)
    @rule(data=st.data(), connection=CONNECTIONS)
    def release(self, data: st.DataObject, connection: int) -> None:
        held = [(c, t.generation) for t in self.model.things for c in t.holds]
        anything = (connection, data.draw(st.sampled_from(self.generations)))
        who, generation = data.draw(st.sampled_from(held)) if held and data.draw(st.integers(0, 9)) else anything
        assert self.answer(self.native.release(who, generation)) == self.model.release(who, generation)

    @rule()
    def revoke_holds(self) -> None:
        self.native.revoke_holds(self.now_ms)
        self.model.revoke_holds(self.now_ms)

    @rule(data=st.data())
    def peek_changes_nothing(self, data: st.DataObject) -> None:
        tenant_id, key = self.some_identity(data)
        self.check_read(
            self.native.peek(key, self.now_ms, tenant_id), self.model.find_visible((tenant_id, key), self.now_ms)
        )

    @rule(data=st.data())
    def why(self, data: st.DataObject) -> None:
        tenant_id, key = self.some_identity(data)
        assert self.native.why(key, tenant_id) == self.model.why_missing((tenant_id, key))

    # Everything else ----------------------------------------------------------------------------------------

    @rule(data=st.data(), reason=st.sampled_from([Reason.REMOVED, Reason.DAMAGED]))
    def remove(self, data: st.DataObject, reason: Reason) -> None:
        tenant_id, key = self.some_identity(data)
        result = self.native.remove(key, self.now_ms, tenant_id, int(reason))
        assert self.answer(result) == self.model.remove((tenant_id, key), reason, self.now_ms)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        tenant_id, key = self.some_identity(data)
        result = self.native.pin(key, self.now_ms, tenant_id)
        assert self.answer(result) == self.model.pin((tenant_id, key), self.now_ms)

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        tenant_id, key = self.some_identity(data)
        assert self.answer(self.native.unpin(key, tenant_id)) == self.model.unpin((tenant_id, key))

    @rule(namespace_id=st.sampled_from([0, 1, 1, 2, 2]), sure=st.integers(0, 3))
    def clear(self, namespace_id: int, sure: int) -> None:
        if sure == 0:
            assert self.native.clear(namespace_id, self.now_ms) == self.model.clear(namespace_id)

    @rule(connection=CONNECTIONS)
    def drop_connection(self, connection: int) -> None:
        self.native.drop_connection(connection)
        self.model.drop_connection(connection)

    @rule(milliseconds=st.sampled_from([0, 1, 10, 50, 250]))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule()
    def expire(self) -> None:
        self.native.expire(self.now_ms, 1000)
        self.model.expire(self.now_ms)

    # What always holds --------------------------------------------------------------------------------------

    @staticmethod
    def answer(result: dict[str, Any]) -> Answer:
        return (Status(result["status"]), Reason(result["reason"]))

    @invariant()
    def the_table_is_sound(self) -> None:
        assert self.native.check_integrity() == ""

    @invariant()
    def counts_agree(self) -> None:
        stats = self.native.stats()
        expected = self.model.stats()
        assert {name: stats[name] for name in expected} == expected

    @invariant()
    def events_tell_what_is_visible(self) -> None:
        for event in self.native.take_events():
            if event["kind"] == 2:
                self.told.clear()
            elif event["kind"] == 0:
                assert event["digest"] not in self.told
                self.told[event["digest"]] = event
            else:
                assert self.told.pop(event["digest"])["tenant_id"] == event["tenant_id"]
            self.no_hole_in_what_was_told(event)
        visible = {digest_of(*identity): thing for identity, thing in self.model.visible().items()}
        assert self.told.keys() == visible.keys()
        snapshot = {event["digest"]: event for event in self.native.snapshot()}
        assert snapshot == self.told
        for digest, thing in visible.items():
            for name in ("length", "tenant_id", "namespace_id", "block_hash", "shard_index", "kv_group", "parent_hash"):
                assert snapshot[digest][name] == getattr(thing.put, name), name

    def no_hole_in_what_was_told(self, event: dict[str, Any]) -> None:
        """After each single event, whoever knows a chained block knows its parent, unless that one is just going."""
        if event["kind"] != 0 or not event["chained"] or not event["parent_hash"]:
            return
        parents = [
            other
            for other in self.told.values()
            if other["block_hash"] == event["parent_hash"]
            and other["namespace_id"] == event["namespace_id"]
            and other["kv_group"] == event["kv_group"]
        ]
        assert len(parents) == parents[0]["bundle_count"]


class MixedSizesMachine(TableMachine):
    """Sizes that fragment the arenas: how many go is the allocator's business, which ones go is still the model's."""

    lengths = st.sampled_from([0, 1, 64, 100, 129, 500, 1000])

    def check_need(self, evicted_count: int, result: dict[str, Any]) -> None:
        pass


TestObjectTable = TableMachine.TestCase
TestObjectTableWithMixedSizes = MixedSizesMachine.TestCase
