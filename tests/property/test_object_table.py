"""The native object table against its model, step by step."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.table_driver import TableDriver
from models.table_records import Put, block, block_path, bundle_member
from moonpool.types import Reason

CONNECTIONS = st.integers(1, 3)
OFTEN = st.sampled_from([True] * 7 + [False])
MIXED_LENGTHS = [0, 1, 64, 100, 129, 500, 1000]
ARENAS = [[8], [6, 5], [3, 1, 4], [20], [2]]
CAPS = [(1000, 1000), (1000, 1000), (4, 3)]

PLAIN_PUTS = st.builds(Put, st.sampled_from([b"a", b"b", b"c", b"d"]), tenant_id=st.sampled_from([0, 0, 1]))
BUNDLE_PUTS = st.builds(bundle_member, st.integers(1, 2), st.integers(0, 2), st.sampled_from([2, 2, 2, 1, 3]))
BLOCK_PUTS = st.builds(
    block,
    namespace_id=st.integers(1, 2),
    block_hash=st.integers(1, 7),
    kv_group=st.sampled_from([0, 0, 0, 1]),
    shard_index=st.integers(0, 1),
    key_suffix=st.sampled_from([b""] * 15 + [b"/other key"]),
)


@st.composite
def puts(draw: st.DrawFn) -> Put:
    put = draw(st.one_of(PLAIN_PUTS, BUNDLE_PUTS, BLOCK_PUTS, BLOCK_PUTS))
    changes: dict[str, Any] = {}
    if not draw(OFTEN):
        changes["keep_at_least_ms"] = draw(st.sampled_from([0, 20, 200]))
        changes["keep_at_most_ms"] = draw(st.sampled_from([0, 30, 300]))
        changes["priority"] = draw(st.sampled_from([0, 1, 200, 255]))
    if not draw(OFTEN):
        changes |= draw(st.sampled_from(misfits(put)))
    return dataclasses.replace(put, **changes)


def misfits(put: Put) -> list[dict[str, Any]]:
    """Changes after which a put is nonsense, or does not fit what else there is of its unit."""
    changes: list[dict[str, Any]] = [{"bundle_count": count} for count in (0, 1, 2, 3)]
    if put.namespace_id:
        changes += [{name: number} for name in ("parent_hash", "shard_count", "block_hash") for number in (0, 1, 2)]
        changes += [{"chained": not put.chained}, {"shard_index": 2}]
    return changes


class TableMachine(RuleBasedStateMachine):
    one_size = True

    @initialize(arenas=st.sampled_from(ARENAS), object_count_max=st.sampled_from([1000, 8]), caps=st.sampled_from(CAPS))
    def start(self, arenas: list[int], object_count_max: int, caps: tuple[int, int]) -> None:
        self.driver = TableDriver(arenas, object_count_max=object_count_max, caps=caps, one_size=self.one_size)

    # Draws --------------------------------------------------------------------------------------------------

    def some_put(self, data: st.DataObject) -> Put:
        length = 100 if self.one_size else data.draw(st.sampled_from(MIXED_LENGTHS))
        return dataclasses.replace(data.draw(puts()), length=length)

    def some_reservation(self, data: st.DataObject) -> tuple[int, int]:
        """Mostly (connection, generation) of an open one, now and then any generation there ever was."""
        open_ones = [(t.writer, t.generation) for t in self.driver.model.things if t.stage in ("reserved", "detached")]
        if open_ones and data.draw(OFTEN):
            return data.draw(st.sampled_from(open_ones))
        return data.draw(CONNECTIONS), data.draw(st.sampled_from(self.driver.generations))

    def some_hold(self, data: st.DataObject) -> tuple[int, int]:
        held = [(connection, t.generation) for t in self.driver.model.things for connection in t.holds]
        if held and data.draw(OFTEN):
            return data.draw(st.sampled_from(held))
        return data.draw(CONNECTIONS), data.draw(st.sampled_from(self.driver.generations))

    def some_identity(self, data: st.DataObject, visible: bool = False) -> tuple[int, bytes]:
        model = self.driver.model
        known = list(model.visible()) if visible else [thing.identity for thing in model.things]
        if known and data.draw(OFTEN):
            return data.draw(st.sampled_from(known))
        put = data.draw(puts())
        return put.tenant_id, put.key

    # Verbs --------------------------------------------------------------------------------------------------

    @rule(data=st.data(), connection=CONNECTIONS, arena=st.integers(0, 3))
    def reserve(self, data: st.DataObject, connection: int, arena: int) -> None:
        self.driver.reserve(self.some_put(data), connection, arena)

    @rule(data=st.data(), connection=CONNECTIONS, checksum=st.integers(0, 1))
    def put(self, data: st.DataObject, connection: int, checksum: int) -> None:
        self.driver.put(self.some_put(data), connection, checksum)

    @rule(block_hash=st.integers(1, 7), namespace_id=st.integers(1, 2), connection=CONNECTIONS)
    def put_chain(self, block_hash: int, namespace_id: int, connection: int) -> None:
        self.driver.put_chain(block_path(namespace_id, block_hash), connection)

    @precondition(lambda self: self.driver.generations)
    @rule(data=st.data(), checksum=st.integers(0, 1))
    def commit(self, data: st.DataObject, checksum: int) -> None:
        self.driver.commit(*self.some_reservation(data), checksum)

    @precondition(lambda self: self.driver.generations)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.driver.abort(*self.some_reservation(data))

    @rule(age_ms=st.integers(0, 50))
    def quarantine_reservations(self, age_ms: int) -> None:
        self.driver.quarantine_older_than(max(0, self.driver.now_ms - age_ms))

    @rule(connection=CONNECTIONS)
    def quarantine_connection(self, connection: int) -> None:
        self.driver.quarantine_connection(connection)

    @rule(data=st.data(), connection=CONNECTIONS, copy=st.booleans())
    def hold(self, data: st.DataObject, connection: int, copy: bool) -> None:
        self.driver.hold(self.some_identity(data, visible=True), connection, copy)

    @precondition(lambda self: self.driver.generations)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.driver.release(*self.some_hold(data))

    @precondition(lambda self: self.driver.generations)
    @rule(data=st.data(), tenant_id=st.sampled_from([0, 7]))
    def touch(self, data: st.DataObject, tenant_id: int) -> None:
        self.driver.touch(data.draw(st.sampled_from(self.driver.generations)), tenant_id)

    @rule()
    def revoke_holds(self) -> None:
        self.driver.revoke_holds()

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        identity = self.some_identity(data)
        self.driver.why(identity)
        self.driver.peek(identity)

    @rule(data=st.data(), reason=st.sampled_from([Reason.REMOVED, Reason.DAMAGED]))
    def remove(self, data: st.DataObject, reason: Reason) -> None:
        self.driver.remove(self.some_identity(data), reason)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        self.driver.pin(self.some_identity(data, visible=True))

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        self.driver.unpin(self.some_identity(data))

    @rule(namespace_id=st.sampled_from([1, 2, 0]), spare=OFTEN)
    def clear(self, namespace_id: int, spare: bool) -> None:
        if not spare:
            self.driver.clear(namespace_id)

    @rule(connection=CONNECTIONS, spare=OFTEN)
    def drop_connection(self, connection: int, spare: bool) -> None:
        if not spare:
            self.driver.drop_connection(connection)

    @rule(milliseconds=st.sampled_from([0, 1, 10, 50, 250]))
    def time_passes(self, milliseconds: int) -> None:
        self.driver.now_ms += milliseconds

    @rule()
    def expire(self) -> None:
        self.driver.expire()

    @invariant()
    def native_and_model_agree(self) -> None:
        self.driver.check()


class MixedSizesMachine(TableMachine):
    """Sizes that fragment the arenas."""

    one_size = False


TestObjectTable = TableMachine.TestCase
TestObjectTableWithMixedSizes = MixedSizesMachine.TestCase


class Walk:
    """A long random walk: deeper states than the machine above reaches, without its shrinking."""

    def __init__(self, seed: int, one_size: bool) -> None:
        self.random = random.Random(seed)
        arenas, caps = self.random.choice(ARENAS), self.random.choice(CAPS)
        object_count_max = self.random.choice([1000, 1000, 8])
        self.one_size = one_size
        self.driver = TableDriver(arenas, object_count_max=object_count_max, caps=caps, one_size=one_size)

    def some_put(self) -> Put:
        draw = self.random
        kind = draw.randrange(4)
        if kind == 0:
            put = Put(draw.choice([b"a", b"b", b"c", b"d"]), tenant_id=draw.choice([0, 7]))
        elif kind == 1:
            put = bundle_member(draw.randint(1, 2), draw.randint(0, 2), draw.choice([2, 2, 2, 1, 3]))
        else:
            put = block(
                namespace_id=draw.randint(1, 2),
                block_hash=draw.randint(1, 7),
                kv_group=int(draw.random() < 0.2),
                shard_index=draw.randint(0, 1),
                key_suffix=b"/other key" if draw.random() < 0.05 else b"",
            )
        changes: dict[str, Any] = {} if self.one_size else {"length": draw.choice(MIXED_LENGTHS)}
        if draw.random() < 0.2:
            changes["keep_at_least_ms"] = draw.choice([0, 20, 200])
            changes["keep_at_most_ms"] = draw.choice([0, 30, 300])
            changes["priority"] = draw.choice([0, 1, 200, 255])
        if draw.random() < 0.03:
            changes |= draw.choice(misfits(put))
        return dataclasses.replace(put, **changes)

    def some_identity(self, visible: bool) -> tuple[int, bytes]:
        model = self.driver.model
        known = list(model.visible()) if visible else [thing.identity for thing in model.things]
        if known and self.random.random() < 0.9:
            return self.random.choice(known)
        put = self.some_put()
        return put.tenant_id, put.key

    def some_reservation(self) -> tuple[int, int]:
        open_ones = [(t.writer, t.generation) for t in self.driver.model.things if t.stage in ("reserved", "detached")]
        return self.some_of(open_ones)

    def some_hold(self) -> tuple[int, int]:
        return self.some_of([(c, t.generation) for t in self.driver.model.things for c in t.holds])

    def some_of(self, likely: list[tuple[int, int]]) -> tuple[int, int]:
        if likely and self.random.random() < 0.95:
            return self.random.choice(likely)
        return self.random.randint(1, 3), self.random.choice(self.driver.generations or [1 << 32])

    def step(self) -> None:
        draw, driver = self.random, self.driver
        connection = draw.randint(1, 3)
        verbs: dict[Any, int] = {
            lambda: driver.reserve(self.some_put(), connection, draw.randint(0, 3)): 10,
            lambda: driver.put(self.some_put(), connection, draw.randint(0, 1)): 15,
            lambda: driver.put_chain(block_path(draw.randint(1, 2), draw.randint(1, 7)), connection): 6,
            lambda: driver.commit(*self.some_reservation(), draw.randint(0, 1)): 10,
            lambda: driver.abort(*self.some_reservation()): 3,
            lambda: driver.quarantine_older_than(max(0, driver.now_ms - draw.randint(0, 50))): 1,
            lambda: driver.quarantine_connection(connection): 1,
            lambda: driver.hold(self.some_identity(True), connection, draw.random() < 0.5): 10,
            lambda: driver.release(*self.some_hold()): 9,
            lambda: driver.touch(draw.choice(driver.generations or [1 << 32]), draw.choice([0, 0, 1])): 4,
            driver.revoke_holds: 2,
            lambda: driver.peek(self.some_identity(False)): 3,
            lambda: driver.why(self.some_identity(False)): 3,
            lambda: driver.remove(self.some_identity(False), draw.choice([Reason.REMOVED, Reason.DAMAGED])): 2,
            lambda: driver.pin(self.some_identity(True)): 1,
            lambda: driver.unpin(self.some_identity(True)): 2,
            lambda: driver.clear(draw.randint(0, 2)): 0 if draw.random() < 0.8 else 1,
            lambda: driver.drop_connection(connection): 1,
            driver.expire: 2,
        }
        driver.now_ms += draw.choice([0, 0, 0, 1, 5, 40])
        draw.choices(list(verbs), list(verbs.values()))[0]()
        driver.check()


@pytest.mark.parametrize("one_size", [True, False], ids=["one size", "mixed sizes"])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_long_walks_leave_native_and_model_equal(one_size: bool, seed: int) -> None:
    walk = Walk(seed, one_size)
    for _ in range(300):
        walk.step()
