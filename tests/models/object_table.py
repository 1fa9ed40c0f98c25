"""The object table as one would write it without caring for speed: lists of things, counted again at every question.

The model does not place objects in memory. A reservation is told how many objects the native table evicted for it
and evicts in its own order until it has evicted as many, so that a wrong victim shows at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from models.table_records import HEADER_BYTES, Answer, Holds, Limits, Put, Thing, Unit, UnitName, space_bytes
from moonpool.types import KEY_BYTES_MAX, Reason, Status

PUT_TOTALS = ("stored", "present", "conflict", "no_room", "refused", "aborted")
TOTALS = (*PUT_TOTALS, "hit", "miss", "evicted", "expired", "removed", "damaged")


class ObjectTableModel:
    def __init__(self, largest_arena_bytes: int, limits: Limits) -> None:
        self.largest_arena_bytes = largest_arena_bytes
        self.limits = limits
        self.things: list[Thing] = []
        self.units: dict[UnitName, Unit] = {}
        self.why_log: dict[tuple[int, bytes], Reason] = {}
        self.hold_order: list[tuple[int, Thing]] = []  # (connection, object) of every hold record, oldest first
        self.use_count = 0
        self.plain_names = itertools.count()
        self.totals: dict[str, int] = dict.fromkeys(TOTALS, 0)

    # Looking ------------------------------------------------------------------------------------------------

    def members(self, unit: Unit) -> list[Thing]:
        return [thing for thing in self.things if thing.unit is unit and thing.stage == "committed"]

    def reservations(self, unit: Unit) -> list[Thing]:
        return [thing for thing in self.things if thing.unit is unit and thing.stage == "reserved"]

    def children(self, unit: Unit) -> list[Unit]:
        return [child for child in self.units.values() if child.parent_name == unit.name]

    def resident(self, identity: tuple[int, bytes]) -> Thing | None:
        return next((t for t in self.things if t.stage == "committed" and t.identity == identity), None)

    def by_generation(self, generation: int) -> Thing | None:
        return next((t for t in self.things if t.generation == generation), None)

    def visible(self) -> dict[tuple[int, bytes], Thing]:
        return {t.identity: t for t in self.things if t.stage == "committed" and t.unit.visible}

    def evictable(self, now_ms: int) -> list[Unit]:
        """The first one goes first."""
        units = [
            unit
            for unit in self.units.values()
            if self.members(unit)
            and not self.reservations(unit)
            and not self.children(unit)
            and unit.keep_until_ms <= now_ms
            and not any(member.held or member.pinned for member in self.members(unit))
        ]
        return sorted(units, key=lambda unit: (unit.priority, unit.last_use))

    def why_missing(self, identity: tuple[int, bytes]) -> Reason:
        thing = self.resident(identity)
        if thing is None:
            if any(t.stage == "reserved" and t.identity == identity for t in self.things):
                return Reason.NOT_COMMITTED
            return self.why_log.get(identity, Reason.NEVER_STORED)
        if thing.unit.visible:
            return Reason.NONE
        whole = len(self.members(thing.unit)) == thing.unit.bundle_count
        return Reason.NO_PARENT if whole else Reason.INCOMPLETE_BUNDLE

    def stats(self) -> dict[str, int]:
        def summed(things: Iterator[Thing]) -> int:
            return sum(thing.bytes for thing in things)

        def staged(stage: str) -> list[Thing]:
            return [thing for thing in self.things if thing.stage == stage]

        return {
            "used_bytes": summed(iter(self.things)),
            "committed_bytes": summed(iter(staged("committed"))),
            "reserved_bytes": summed(iter(staged("reserved"))),
            "quarantined_bytes": summed(iter(staged("detached"))),
            "held_bytes": summed(t for t in self.things if t.held),
            "pinned_bytes": summed(t for t in self.things if t.pinned),
            "object_count": len(staged("committed")),
            "reservation_count": len(staged("reserved")),
            "quarantined_count": len(staged("detached")),
            "hold_count": sum(holds.active for t in self.things for holds in t.holds.values()),
            "pin_count": sum(t.pinned for t in self.things),
        } | {f"{name}_total": count for name, count in self.totals.items()}

    # Steps --------------------------------------------------------------------------------------------------

    def touch(self, unit: Unit) -> None:
        self.use_count += 1
        unit.last_use = self.use_count

    def settle(self) -> None:
        """Units in which nothing is left end; units that are whole, and have a visible parent, are visible."""
        while True:
            empty = [
                unit
                for unit in self.units.values()
                if not self.members(unit) and not self.reservations(unit) and not self.children(unit)
            ]
            if not empty:
                break
            for unit in empty:
                del self.units[unit.name]
        changed = True
        while changed:
            changed = False
            for unit in self.units.values():
                parent = self.units.get(unit.parent_name) if unit.parent_name else None
                parent_visible = unit.parent_name is None or (parent is not None and parent.visible)
                visible = parent_visible and len(self.members(unit)) == unit.bundle_count
                if visible == unit.visible:
                    continue
                changed, unit.visible = True, visible
                if visible and parent is not None and parent.expires_ms:
                    unit.expires_ms = min(unit.expires_ms or parent.expires_ms, parent.expires_ms)

    def free(self, thing: Thing) -> None:
        self.things.remove(thing)
        self.hold_order = [(connection, held) for connection, held in self.hold_order if held is not thing]

    def drop(self, unit: Unit, reason: Reason) -> None:
        """The unit's members and its descendants' go; what is held stays in memory until it is let go."""
        for child in self.children(unit):
            self.drop(child, reason)
        for member in self.members(unit):
            self.why_log[member.identity] = reason
            name = reason.label if reason.label in ("evicted", "expired", "damaged") else "removed"
            self.totals[name] += 1
            member.stage, member.pinned = "vanished", False
            if not member.held:
                self.free(member)
        unit.keep_until_ms = unit.expires_ms = unit.priority = 0

    def expire_if_due(self, unit: Unit, now_ms: int) -> bool:
        due = unit.expires_ms != 0 and unit.expires_ms <= now_ms
        if due:
            self.drop(unit, Reason.EXPIRED)
            self.settle()
        return due

    def evict(self, object_count: int, now_ms: int) -> None:
        before = self.totals["evicted"]
        while self.totals["evicted"] - before < object_count:
            self.drop(self.evictable(now_ms)[0], Reason.EVICTED)
            self.settle()

    def refuse(self, reason: Reason) -> Answer:
        self.totals["refused"] += 1
        return (Status.REFUSED, reason)

    # Puts ---------------------------------------------------------------------------------------------------

    def check_put(self, put: Put) -> Reason:
        if len(put.key) > KEY_BYTES_MAX:
            return Reason.KEY_TOO_LONG
        if put.length > self.largest_arena_bytes - HEADER_BYTES:
            return Reason.VALUE_TOO_LARGE
        if put.namespace_id:
            sound = (
                put.block_hash != 0
                and 0 < put.bundle_count <= put.shard_count
                and put.shard_index < put.shard_count
                and not (put.chained and put.parent_hash == put.block_hash)
            )
        else:
            sound = put.bundle_count > 0 and (put.bundle_count == 1 or put.bundle_id != 0)
        return Reason.NONE if sound else Reason.BAD_REQUEST

    def present(self, thing: Thing, length: int, checksum: int | None) -> Answer:
        same = thing.put.length == length and checksum in (None, thing.checksum)
        self.totals["present" if same else "conflict"] += 1
        self.touch(thing.unit)
        return (Status.PRESENT if same else Status.CONFLICT, Reason.NONE)

    def fresh_resident(self, identity: tuple[int, bytes], now_ms: int) -> Thing | None:
        thing = self.resident(identity)
        return None if thing is None or self.expire_if_due(thing.unit, now_ms) else thing

    def reserve(self, put: Put, connection: int, now_ms: int) -> Answer | Unit:
        """Either an answer, or the unit to be joined: then say what became of it with `joined`."""
        reason = self.check_put(put)
        if reason:
            return self.refuse(reason)
        thing = self.fresh_resident((put.tenant_id, put.key), now_ms)
        if thing is not None:
            return self.present(thing, put.length, None)
        mine = [t for t in self.things if t.writer == connection and t.stage in ("reserved", "detached")]
        reserved_bytes = sum(t.bytes for t in mine) + space_bytes(put.length)
        if len(mine) >= self.limits.reservations or reserved_bytes > self.limits.reserved_bytes:
            return self.refuse(Reason.CONNECTION_LIMIT)
        parent_name = put.block_name(put.parent_hash) if put.needs_parent else None
        if parent_name is not None and not self.has_parent(parent_name, connection, now_ms):
            return self.refuse(Reason.NO_PARENT)
        if put.namespace_id:
            name = put.block_name(put.block_hash)
        else:
            name = ("bundle", put.tenant_id, put.bundle_id) if put.bundle_id else ("plain", next(self.plain_names))
        unit = self.units.get(name)
        if unit is None:
            return Unit(name, put.shape, put.bundle_count, parent_name)
        return unit if unit.shape == put.shape else self.refuse(Reason.BAD_REQUEST)

    def has_parent(self, name: UnitName, connection: int, now_ms: int) -> bool:
        parent = self.units.get(name)
        if parent is not None and self.expire_if_due(parent, now_ms):
            parent = self.units.get(name)
        if parent is None:
            return False
        return bool(self.members(parent)) or any(t.writer == connection for t in self.reservations(parent))

    def joined(self, put: Put, unit: Unit, thing: Thing | None, evicted_count: int, now_ms: int) -> None:
        """Room was found for the reservation (else thing is None) after so many evictions."""
        held_place = Thing(put, -1, -1, now_ms, unit)  # the reservation protects its unit while room is found
        self.units.setdefault(unit.name, unit)
        self.things.append(held_place)
        self.evict(evicted_count, now_ms)
        if thing is None:
            self.totals["no_room"] += 1
            assert not self.evictable(now_ms), "no_room, though something could be evicted"
        self.things.remove(held_place)
        if thing is not None:
            self.things.append(thing)
        self.settle()

    def own_reservation(self, connection: int, generation: int) -> Thing | None:
        thing = self.by_generation(generation)
        mine = thing is not None and thing.writer == connection and thing.stage in ("reserved", "detached")
        return thing if mine else None

    def commit(self, connection: int, generation: int, checksum: int, now_ms: int) -> Answer:
        thing = self.own_reservation(connection, generation)
        if thing is None:
            return self.refuse(Reason.NOT_YOURS)
        answer = self.commit_answer(thing, checksum, now_ms)
        if answer[0] == Status.STORED:
            self.enter(thing, checksum, now_ms)
        else:
            self.free(thing)
        self.settle()
        return answer

    def commit_answer(self, thing: Thing, checksum: int, now_ms: int) -> Answer:
        if thing.stage == "detached":
            return self.refuse(thing.detach_reason)
        resident = self.fresh_resident(thing.identity, now_ms)
        if resident is not None:
            return self.present(resident, thing.put.length, checksum)
        unit = thing.unit
        if unit.parent_name is not None:
            parent = self.units[unit.parent_name]
            if self.expire_if_due(parent, now_ms) or not self.members(parent):
                return self.refuse(Reason.NO_PARENT)
        shards = [member.put.shard_index for member in self.members(unit)]
        if thing.put.namespace_id and thing.put.shard_index in shards:
            return self.refuse(Reason.DIGEST_COLLISION)
        if len(shards) >= unit.bundle_count:
            return self.refuse(Reason.BAD_REQUEST)
        return (Status.STORED, Reason.NONE)

    def enter(self, thing: Thing, checksum: int, now_ms: int) -> None:
        put, unit = thing.put, thing.unit
        thing.stage, thing.checksum = "committed", checksum
        self.totals["stored"] += 1
        unit.priority = max(unit.priority, put.priority)
        if put.keep_at_least_ms:
            unit.keep_until_ms = max(unit.keep_until_ms, now_ms + put.keep_at_least_ms)
        if put.keep_at_most_ms:
            expires_ms = now_ms + put.keep_at_most_ms
            unit.expires_ms = min(unit.expires_ms or expires_ms, expires_ms)
        self.touch(unit)

    def abort(self, connection: int, generation: int) -> Answer:
        thing = self.own_reservation(connection, generation)
        if thing is None:
            return (Status.REFUSED, Reason.NOT_YOURS)
        self.totals["aborted"] += 1
        self.free(thing)
        self.settle()
        return (Status.REFUSED, thing.detach_reason) if thing.detach_reason else (Status.DONE, Reason.NONE)

    def detach(self, things: list[Thing], reason: Reason) -> None:
        for thing in things:
            if thing.stage == "reserved":
                thing.stage, thing.detach_reason = "detached", reason
        self.settle()

    # Reads --------------------------------------------------------------------------------------------------

    def find_visible(self, identity: tuple[int, bytes], now_ms: int) -> Thing | Reason:
        thing = self.resident(identity)
        if thing is not None and self.expire_if_due(thing.unit, now_ms):
            return Reason.EXPIRED
        if thing is None or not thing.unit.visible:
            return self.why_missing(identity)
        return thing

    def hold(self, identity: tuple[int, bytes], connection: int, deadline_ms: int, now_ms: int) -> Thing | Reason:
        thing = self.find_visible(identity, now_ms)
        if isinstance(thing, Thing):
            mine = [(t, t.holds[connection].active) for t in self.things if connection in t.holds]
            bytes_held = sum(t.bytes for t, active in mine if active)
            holds = thing.holds.get(connection, Holds())
            more_bytes = 0 if holds.active else thing.bytes
            if sum(active for _, active in mine) >= self.limits.holds or (
                more_bytes and bytes_held + more_bytes > self.limits.held_bytes
            ):
                thing = Reason.CONNECTION_LIMIT
        if isinstance(thing, Reason):
            self.totals["miss"] += 1
            return thing
        if connection not in thing.holds:
            thing.holds[connection] = holds
            self.hold_order.append((connection, thing))
        if deadline_ms:
            holds.copies += 1
            holds.deadline_ms = max(holds.deadline_ms, deadline_ms)
        else:
            holds.views += 1
        self.totals["hit"] += 1
        self.touch(thing.unit)
        return thing

    def touch_generation(self, generation: int, tenant_id: int) -> Thing | None:
        """A read without a hold."""
        thing = self.by_generation(generation)
        if thing is None or thing not in self.visible().values() or thing.put.tenant_id != tenant_id:
            return None
        self.totals["hit"] += 1
        self.touch(thing.unit)
        return thing

    def release(self, connection: int, generation: int) -> Answer:
        thing = self.by_generation(generation)
        holds = thing.holds.get(connection) if thing is not None else None
        if thing is None or holds is None:
            return (Status.REFUSED, Reason.NOT_YOURS)
        answer = (Status.DONE, Reason.NONE)
        if holds.revoked:
            holds.revoked -= 1
            answer = (Status.REFUSED, Reason.DEADLINE)
            self.forget_hold(thing, connection)
        else:
            if holds.copies:
                holds.copies -= 1
            else:
                holds.views -= 1
            self.hold_ended(thing, connection)
        return answer

    def forget_hold(self, thing: Thing, connection: int) -> None:
        holds = thing.holds[connection]
        if not holds.copies:
            holds.deadline_ms = 0
        if not holds.active and not holds.revoked:
            del thing.holds[connection]
            self.hold_order.remove((connection, thing))

    def hold_ended(self, thing: Thing, connection: int) -> None:
        self.forget_hold(thing, connection)
        if thing.held:
            return
        if thing.stage == "vanished":
            self.free(thing)
        else:
            self.touch(thing.unit)

    def revoke_holds(self, now_ms: int) -> None:
        due = [
            (t.holds[connection].deadline_ms, t, connection)
            for t in self.things
            for connection in t.holds
            if t.holds[connection].copies and t.holds[connection].deadline_ms <= now_ms
        ]
        for _, thing, connection in sorted(due, key=lambda item: item[0]):
            holds = thing.holds[connection]
            holds.revoked, holds.copies = holds.revoked + holds.copies, 0
            self.hold_ended(thing, connection)

    # Everything else ----------------------------------------------------------------------------------------

    def remove(self, identity: tuple[int, bytes], reason: Reason, now_ms: int) -> Answer:
        found = self.find_visible(identity, now_ms)
        thing = self.resident(identity)
        if thing is None:
            assert isinstance(found, Reason)
            return (Status.MISS, found)
        self.drop(thing.unit, reason)
        self.settle()
        return (Status.DONE, Reason.NONE)

    def pin(self, identity: tuple[int, bytes], now_ms: int) -> Answer:
        thing = self.find_visible(identity, now_ms)
        if isinstance(thing, Reason):
            return (Status.MISS, thing)
        pinned_bytes = sum(t.bytes for t in self.things if t.pinned)
        if not thing.pinned and pinned_bytes + thing.bytes > self.limits.pinned_bytes:
            return (Status.REFUSED, Reason.CONNECTION_LIMIT)
        thing.pinned = True
        return (Status.DONE, Reason.NONE)

    def unpin(self, identity: tuple[int, bytes]) -> Answer:
        thing = self.resident(identity)
        if thing is None:
            return (Status.MISS, self.why_missing(identity))
        if thing.pinned:
            thing.pinned = False
            self.touch(thing.unit)
        return (Status.DONE, Reason.NONE)

    def clear(self, namespace_id: int) -> int:
        doomed = [t for t in self.things if namespace_id in (0, t.put.namespace_id)]
        self.detach([t for t in doomed if t.stage == "reserved"], Reason.CLEARED)
        object_count = sum(t.stage == "committed" for t in doomed)
        for unit in list({t.unit for t in doomed if t.stage == "committed"}):
            self.drop(unit, Reason.CLEARED)
        self.settle()
        return object_count

    def drop_connection(self, connection: int) -> None:
        for holder, thing in reversed(list(self.hold_order)):
            if holder == connection and connection in thing.holds:
                was_held = thing.holds[connection].active > 0
                thing.holds[connection] = Holds()
                (self.hold_ended if was_held else self.forget_hold)(thing, connection)
        for thing in [t for t in self.things if t.writer == connection and t.stage in ("reserved", "detached")]:
            self.totals["aborted"] += 1
            self.free(thing)
        self.settle()

    def expire(self, now_ms: int) -> None:
        for unit in list(self.units.values()):
            self.expire_if_due(unit, now_ms)
