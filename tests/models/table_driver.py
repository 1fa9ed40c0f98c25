"""Drives the native object table and its model side by side and compares them after every step."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from models.object_table import ObjectTableModel
from models.table_records import Answer, Limits, Put, Thing, Unit, space_bytes
from moonpool._native import ObjectTable
from moonpool.types import Reason, Status

PLACE_BYTES = space_bytes(100)  # arenas hold a whole number of objects of 100 bytes


@functools.cache
def digest_of(tenant_id: int, key: bytes) -> bytes:
    """What the events of the native table call this object."""
    table = ObjectTable([1 << 12], {})
    reserved = table.reserve(key, 0, 1, 0, tenant_id=tenant_id)
    table.commit(1, reserved["generation"], 0, 0)
    digest: bytes = table.take_events()[0]["digest"]
    return digest


class TableDriver:
    """Each verb is done on both sides and the answers must be equal; `check` compares what can be seen from outside.

    one_size: all values are 100 bytes long, so that it is known when there is room. Otherwise how many units go is
    the allocator's business; which ones go is still the model's.
    """

    def __init__(self, arenas: list[int], *, object_count_max: int, caps: tuple[int, int], one_size: bool) -> None:
        self.one_size = one_size
        self.place_count = min(sum(arenas), object_count_max)
        self.limits = Limits(
            object_count_max=object_count_max,
            held_bytes=caps[0] * PLACE_BYTES,
            reserved_bytes=caps[1] * PLACE_BYTES,
            pinned_bytes=caps[1] * PLACE_BYTES,
            holds=caps[0] + 2,
            reservations=caps[1] + 2,
        )
        self.native = ObjectTable([count * PLACE_BYTES for count in arenas], self.limits.native())
        self.model = ObjectTableModel(max(arenas) * PLACE_BYTES, self.limits)
        self.now_ms = 1
        self.told: dict[bytes, dict[str, Any]] = {}  # what a directory would believe after the events so far
        self.listed: dict[bytes, int] = {}  # generation by digest, as the residencies so far say
        self.generations: list[int] = []
        self.live_bytes: dict[tuple[int, int], int] = {}  # (arena, offset) of every extent given out and not freed

    def reserve(self, put: Put, connection: int, arena: int) -> int:
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
            self.take_space(result["extent"])
        self.model.joined(put, expected, thing, evicted_count, self.now_ms)
        return int(result["generation"])

    def check_need(self, evicted_count: int, result: dict[str, Any]) -> None:
        """Nothing is evicted while there is room."""
        if not self.one_size:
            return
        if len(self.model.things) < self.place_count:
            assert (result["status"], evicted_count) == (Status.STORED, 0)
        elif result["status"] == Status.STORED:
            assert evicted_count > 0

    def commit(self, connection: int, generation: int, checksum: int) -> None:
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

    def check_read(self, result: dict[str, Any], expected: Thing | Reason) -> None:
        if isinstance(expected, Reason):
            assert self.answer(result) == (Status.MISS, expected)
        else:
            assert self.answer(result) == (Status.HIT, Reason.NONE)
            assert result["generation"] == expected.generation
            assert (result["extent"]["length"], result["checksum"]) == (expected.put.length, expected.checksum)

    def put(self, put: Put, connection: int, checksum: int = 1, arena: int = 0) -> None:
        generation = self.reserve(put, connection, arena)
        if generation:
            self.commit(connection, generation, checksum)

    def put_chain(self, path: list[Put], connection: int) -> None:
        """Reserves all, parents first, then commits all: one batch of a saver."""
        for generation in [self.reserve(put, connection, 0) for put in path]:
            if generation:
                self.commit(connection, generation, 1)

    def abort(self, connection: int, generation: int) -> None:
        assert self.answer(self.native.abort(connection, generation)) == self.model.abort(connection, generation)

    def quarantine_older_than(self, before_ms: int) -> None:
        self.native.quarantine_reservations_older_than(before_ms)
        self.model.detach([t for t in self.model.things if t.reserved_ms < before_ms], Reason.DEADLINE)

    def quarantine_connection(self, connection: int) -> None:
        self.native.quarantine_connection(connection)
        self.model.detach([t for t in self.model.things if t.writer == connection], Reason.DEADLINE)

    def hold(self, identity: tuple[int, bytes], connection: int, copy: bool) -> None:
        tenant_id, key = identity
        self.now_ms += 1  # so that no two deadlines are equal and the order of revoking is known
        deadline_ms = self.now_ms + 40 if copy else 0
        result = self.native.hold(key, connection, deadline_ms, self.now_ms, tenant_id)
        self.check_read(result, self.model.hold(identity, connection, deadline_ms, self.now_ms))

    def touch(self, generation: int, tenant_id: int) -> None:
        result = self.native.touch(generation, tenant_id)
        expected = self.model.touch_generation(generation, tenant_id)
        assert self.answer(result) == ((Status.MISS, Reason.NONE) if expected is None else (Status.HIT, Reason.NONE))

    def release(self, connection: int, generation: int) -> None:
        assert self.answer(self.native.release(connection, generation)) == self.model.release(connection, generation)

    def revoke_holds(self) -> None:
        self.native.revoke_holds(self.now_ms)
        self.model.revoke_holds(self.now_ms)

    def peek(self, identity: tuple[int, bytes]) -> None:
        tenant_id, key = identity
        self.check_read(self.native.peek(key, self.now_ms, tenant_id), self.model.find_visible(identity, self.now_ms))

    def why(self, identity: tuple[int, bytes]) -> None:
        tenant_id, key = identity
        assert self.native.why(key, tenant_id) == self.model.why_missing(identity)

    def remove(self, identity: tuple[int, bytes], reason: Reason) -> None:
        tenant_id, key = identity
        result = self.native.remove(key, self.now_ms, tenant_id, int(reason))
        assert self.answer(result) == self.model.remove(identity, reason, self.now_ms)

    def pin(self, identity: tuple[int, bytes]) -> None:
        tenant_id, key = identity
        assert self.answer(self.native.pin(key, self.now_ms, tenant_id)) == self.model.pin(identity, self.now_ms)

    def unpin(self, identity: tuple[int, bytes]) -> None:
        tenant_id, key = identity
        assert self.answer(self.native.unpin(key, tenant_id)) == self.model.unpin(identity)

    def clear(self, namespace_id: int) -> None:
        assert self.native.clear(namespace_id, self.now_ms) == self.model.clear(namespace_id)

    def drop_connection(self, connection: int) -> None:
        self.native.drop_connection(connection)
        self.model.drop_connection(connection)

    def expire(self) -> None:
        self.native.expire(self.now_ms, 1000)
        self.model.expire(self.now_ms)

    # What always holds --------------------------------------------------------------------------------------

    @staticmethod
    def answer(result: dict[str, Any]) -> Answer:
        return (Status(result["status"]), Reason(result["reason"]))

    def check(self) -> None:
        assert self.native.check_integrity() == ""
        stats, expected = self.native.stats(), self.model.stats()
        assert {name: stats[name] for name in expected} == expected
        self.check_space()
        self.check_connections()
        self.check_residencies()
        self.check_events()

    def take_space(self, extent: dict[str, int]) -> None:
        """A new reservation lies where nothing lives, header and all."""
        self.take_freed()
        place, begin, end = extent["arena_index"], extent["offset"] - 64, extent["offset"] + extent["length"]
        for (other_place, offset), length in self.live_bytes.items():
            assert other_place != place or offset - 64 >= end or offset + length <= begin, "two live objects overlap"
        self.live_bytes[place, extent["offset"]] = extent["length"]

    def take_freed(self) -> None:
        for extent in self.native.take_freed():
            assert self.live_bytes.pop((extent["arena_index"], extent["offset"])) == extent["length"]

    def check_space(self) -> None:
        self.take_freed()
        assert len(self.live_bytes) == len(self.model.things)

    def check_connections(self) -> None:
        for thing in self.model.things:
            reserved = self.native.reserved(thing.writer, thing.generation)
            if thing.stage == "reserved":
                assert self.answer(reserved) == (Status.STORED, Reason.NONE)
            elif thing.stage == "detached":
                assert self.answer(reserved) == (Status.REFUSED, thing.detach_reason)
            else:
                assert self.answer(reserved) == (Status.REFUSED, Reason.NOT_YOURS)
            for connection in (1, 2, 3):
                holds = thing.holds.get(connection)
                expected = Reason.NOT_YOURS if holds is None else Reason.NONE if holds.active else Reason.DEADLINE
                assert self.native.held(connection, thing.generation)["reason"] == expected

    def check_events(self) -> None:
        """A directory that applied the events one by one knows exactly what is visible."""
        for event in self.native.take_events():
            if event["kind"] == 2:
                self.told.clear()
            elif event["kind"] == 0:
                assert event["digest"] not in self.told
                self.told[event["digest"]] = event
                self.check_parent_was_told(event)
            else:
                assert self.told.pop(event["digest"])["tenant_id"] == event["tenant_id"]
                self.check_no_child_is_left(event)
        visible = {digest_of(*identity): thing for identity, thing in self.model.visible().items()}
        assert self.told.keys() == visible.keys()
        snapshot = {event["digest"]: event for event in self.native.snapshot()}
        assert snapshot == self.told
        names = ("length", "tenant_id", "namespace_id", "block_hash", "shard_index", "kv_group", "parent_hash")
        for digest, thing in visible.items():
            assert {name: snapshot[digest][name] for name in names} == {n: getattr(thing.put, n) for n in names}

    def check_residencies(self) -> None:
        """Whoever keeps account of them knows exactly what is visible, and which generation of it."""
        for residency in self.native.take_residencies():
            if residency["visible"]:
                assert residency["digest"] not in self.listed
                self.listed[residency["digest"]] = residency["generation"]
            else:
                assert self.listed.pop(residency["digest"]) == residency["generation"]
        visible = self.model.visible().items()
        assert self.listed == {digest_of(*identity): thing.generation for identity, thing in visible}

    def told_of(self, event: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
        same = {name: event[name] for name in ("tenant_id", "namespace_id", "kv_group")} | wanted
        return [other for other in self.told.values() if all(other[name] == value for name, value in same.items())]

    def check_parent_was_told(self, event: dict[str, Any]) -> None:
        if event["namespace_id"] and event["chained"] and event["parent_hash"]:
            parents = self.told_of(event, block_hash=event["parent_hash"])
            assert parents, "a block was told before its parent"
            assert len(parents) == parents[0]["bundle_count"]

    def check_no_child_is_left(self, event: dict[str, Any]) -> None:
        if event["namespace_id"]:
            children = self.told_of(event, parent_hash=event["block_hash"], chained=True)
            assert not children, "a parent was taken back before its child"
