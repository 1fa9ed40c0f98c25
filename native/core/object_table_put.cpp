// The put: reserve, commit, abort, and what becomes of reservations whose writers are silent.
#include <algorithm>

#include "core/table_state.hpp"

namespace moonpool {

namespace {

// Members of one bundle are walked one by one.
constexpr std::uint16_t bundle_count_max = 4096;
// How many reservations of the parent are looked at to find one of the same connection, the newest first.
constexpr unsigned parent_look_count = 64;

Reason check_tag(const Tag& tag) {
  if (tag.block_hash == 0 || tag.bundle_count == 0 || tag.shard_index >= tag.shard_count) return Reason::bad_request;
  if (tag.bundle_count > tag.shard_count || tag.bundle_count > bundle_count_max) return Reason::bad_request;
  if (tag.chained && tag.parent_hash == tag.block_hash) return Reason::bad_request;
  return Reason::none;
}

Reason check_spec(const PutSpec& spec, std::uint64_t largest_arena_bytes) {
  if (spec.key.size() > key_bytes_max) return Reason::key_too_long;
  if (largest_arena_bytes < object_header_bytes) return Reason::value_too_large;
  if (spec.length > largest_arena_bytes - object_header_bytes) return Reason::value_too_large;
  if (spec.tag.present()) return check_tag(spec.tag);
  if (spec.bundle_count == 0 || spec.bundle_count > bundle_count_max) return Reason::bad_request;
  if (spec.bundle_count > 1 && spec.bundle_id == 0) return Reason::bad_request;
  return Reason::none;
}

Unit unit_of(const PutSpec& spec) {
  Unit unit;
  unit.tenant_id = spec.tenant_id;
  if (spec.tag.present()) {
    unit.namespace_id = spec.tag.namespace_id;
    unit.name = spec.tag.block_hash;
    unit.parent_hash = spec.tag.parent_hash;
    unit.bundle_count = spec.tag.bundle_count;
    unit.shard_count = spec.tag.shard_count;
    unit.kv_group = spec.tag.kv_group;
    unit.chained = spec.tag.chained;
  } else {
    unit.name = spec.bundle_id;
    unit.bundle_count = spec.bundle_count;
  }
  return unit;
}

bool same_shape(const Unit& one, const Unit& other) {
  return one.parent_hash == other.parent_hash && one.bundle_count == other.bundle_count &&
         one.shard_count == other.shard_count && one.chained == other.chained;
}

ReserveResult refused(TableState& state, Reason reason) {
  ++state.counts.refused_total;
  ReserveResult result;
  result.reason = reason;
  return result;
}

bool reserved_by(const TableState& state, const Unit& unit, ConnectionId connection) {
  Slot slot = unit.reservations;
  for (unsigned count = 0; slot != no_slot && count < parent_look_count; ++count) {
    if (state.objects[slot].writer == connection) return true;
    slot = state.objects[slot].unit_link.after;
  }
  return false;
}

// The parent that a new unit may be linked below. False: there is none, but it needs one.
bool find_parent(TableState& state, Unit& unit, ConnectionId connection, std::uint64_t now_ms) {
  if (!unit.chained || unit.parent_hash == 0) return true;
  const Slot parent = state.units.find({unit.tenant_id, unit.namespace_id, unit.parent_hash, unit.kv_group});
  if (parent == no_slot) return false;
  if (state.expire_if_due(parent, now_ms)) return find_parent(state, unit, connection, now_ms);
  unit.parent = parent;
  return state.units[parent].member_count > 0 || reserved_by(state, state.units[parent], connection);
}

// The unit that the object is to join, made if it is new. Its reservation_count already counts the object, so that
// neither it nor its ancestors are evicted while room is found.
Reason join_unit(TableState& state, const PutSpec& spec, ConnectionId connection, std::uint64_t now_ms, Slot& joined) {
  Unit unit = unit_of(spec);
  if (!find_parent(state, unit, connection, now_ms)) return Reason::no_parent;
  joined = state.units.find({unit.tenant_id, unit.namespace_id, unit.name, unit.kv_group});
  if (joined == no_slot) {
    joined = state.units.create(unit);
    if (unit.parent != no_slot) state.settle(unit.parent);
  } else if (!same_shape(unit, state.units[joined])) {
    return Reason::bad_request;
  }
  ++state.units[joined].reservation_count;
  state.settle(joined);
  return Reason::none;
}

bool find_slot_and_room(TableState& state, std::uint64_t bytes, std::uint32_t arena_preferred, std::uint64_t now_ms,
                        Extent& extent) {
  if (state.objects.count() >= state.limits.object_count_max) {
    const Slot victim = state.next_victim(now_ms);
    if (victim == no_slot) return false;
    state.drop_unit(victim, Reason::evicted);
  }
  return state.find_room(bytes, arena_preferred, now_ms, extent);
}

Slot enter_reservation(TableState& state, const PutSpec& spec, Slot unit, const Extent& extent) {
  const Slot slot = state.objects.acquire();
  Object& object = state.objects[slot];
  object.digest = spec.digest;
  object.offset = extent.offset;
  object.arena_index = extent.arena_index;
  object.length = spec.length;
  ++object.sequence;
  object.unit = unit;
  object.key = state.keys.add(spec.key);
  object.key_bytes = static_cast<std::uint16_t>(spec.key.size());
  object.shard_index = spec.tag.shard_index;
  object.priority = spec.priority;
  object.keep_at_least_ms = spec.keep_at_least_ms;
  object.keep_at_most_ms = spec.keep_at_most_ms;
  object.stage = Stage::reserved;
  link_front(state.objects, state.units[unit].reservations, slot, &Object::unit_link);
  state.link_key(slot);
  return slot;
}

ReserveResult present(TableState& state, Slot resident, std::uint64_t length, std::optional<std::uint32_t> checksum) {
  const Object& object = state.objects[resident];
  const bool same = object.length == length && (!checksum || object.checksum == *checksum);
  ++(same ? state.counts.present_total : state.counts.conflict_total);
  state.touch(object.unit);
  ReserveResult result;
  result.status = same ? Status::present : Status::conflict;
  result.generation = state.generation_of(resident);
  result.present_checksum = object.checksum;
  result.present_length = object.length;
  return result;
}

// The committed object of the digest, after expiry, or no_slot.
Slot find_resident(TableState& state, const Digest& digest, std::uint64_t now_ms) {
  const Slot slot = state.find_digest(digest);
  if (slot == no_slot || state.objects[slot].stage != Stage::committed) return no_slot;
  return state.expire_if_due(state.objects[slot].unit, now_ms) ? no_slot : slot;
}

// Why a commit into the unit is refused although nobody committed the key before.
Reason check_place(TableState& state, const Object& object, std::uint64_t now_ms) {
  const Slot parent = state.units[object.unit].parent;
  if (parent != no_slot && (state.expire_if_due(parent, now_ms) || state.units[parent].member_count == 0))
    return Reason::no_parent;
  const Unit& unit = state.units[object.unit];
  if (unit.namespace_id != 0) {
    for (Slot member = unit.members; member != no_slot; member = state.objects[member].unit_link.after) {
      if (state.objects[member].shard_index == object.shard_index) return Reason::digest_collision;
    }
  }
  return unit.member_count < unit.bundle_count ? Reason::none : Reason::bad_request;
}

void enter_member(TableState& state, Slot slot, std::uint32_t checksum, std::uint64_t now_ms) {
  Object& object = state.objects[slot];
  const Slot unit_slot = object.unit;
  Unit& unit = state.units[unit_slot];
  const std::uint64_t bytes = object.space_bytes();
  Connection& writer = state.connections[object.writer];
  unlink(state.objects, writer.reservations, slot, &Object::connection_link);
  writer.reserved_bytes -= bytes;
  --writer.reservation_count;
  unlink(state.objects, unit.reservations, slot, &Object::unit_link);
  link_front(state.objects, unit.members, slot, &Object::unit_link);
  --unit.reservation_count;
  ++unit.member_count;
  state.move_key_first(slot);
  state.ages.remove(slot);
  object.stage = Stage::committed;
  object.checksum = checksum;
  object.time_ms = now_ms;
  state.counts.reserved_bytes -= bytes;
  state.counts.committed_bytes += bytes;
  --state.counts.reservation_count;
  ++state.counts.object_count;
  ++state.counts.stored_total;
  unit.priority = std::max(unit.priority, object.priority);
  if (object.keep_at_least_ms != 0) unit.keep_until_ms = std::max(unit.keep_until_ms, now_ms + object.keep_at_least_ms);
  if (object.keep_at_most_ms != 0) {
    const std::uint64_t expires_at_ms = now_ms + object.keep_at_most_ms;
    if (unit.expires_at_ms == 0 || expires_at_ms < unit.expires_at_ms) state.set_expiry(unit_slot, expires_at_ms);
  }
  state.touch(unit_slot);
  state.settle(unit_slot);
  state.show(unit_slot);
}

}  // namespace

ReserveResult ObjectTable::reserve(const PutSpec& spec, ConnectionId connection, std::uint32_t arena_preferred,
                                   std::uint64_t now_ms) {
  TableState& state = *state_;
  if (const Reason reason = check_spec(spec, state.largest_arena_bytes); reason != Reason::none)
    return refused(state, reason);
  const Slot known = state.find_digest(spec.digest);
  if (known != no_slot && !state.same_key(known, spec.key, spec.tenant_id))
    return refused(state, Reason::digest_collision);
  const Slot resident = known == no_slot ? no_slot : find_resident(state, spec.digest, now_ms);
  if (resident != no_slot) return present(state, resident, spec.length, std::nullopt);

  const std::uint64_t bytes = TableState::space_bytes_of(spec.length);
  Connection& writer = state.connections[connection];
  if (writer.reservation_count >= state.limits.reservations_per_connection_max ||
      writer.reserved_bytes + bytes > state.limits.reserved_bytes_per_connection_max)
    return refused(state, Reason::connection_limit);

  ReserveResult result;
  Slot unit = no_slot;
  if (const Reason reason = join_unit(state, spec, connection, now_ms, unit); reason != Reason::none)
    return refused(state, reason);
  if (!find_slot_and_room(state, bytes, arena_preferred, now_ms, result.extent)) {
    --state.units[unit].reservation_count;
    state.prune(unit);
    ++state.counts.no_room_total;
    result.status = Status::no_room;
    return result;
  }
  const Slot slot = enter_reservation(state, spec, unit, result.extent);
  state.objects[slot].writer = connection;
  state.objects[slot].time_ms = now_ms;
  state.ages.push(now_ms, slot);
  link_front(state.objects, writer.reservations, slot, &Object::connection_link);
  writer.reserved_bytes += bytes;
  ++writer.reservation_count;
  state.counts.reserved_bytes += bytes;
  ++state.counts.reservation_count;
  result.status = Status::stored;
  result.generation = state.generation_of(slot);
  result.extent.length = spec.length;
  return result;
}

ReserveResult ObjectTable::commit(ConnectionId connection, Generation generation, std::uint32_t checksum,
                                  std::uint64_t now_ms) {
  TableState& state = *state_;
  const Slot slot = state.find_reservation(connection, generation);
  if (slot == no_slot) return refused(state, Reason::not_yours);
  const Object& object = state.objects[slot];
  if (object.stage == Stage::detached) {
    const Reason reason = object.detach_reason;
    state.discard_reservation(slot);
    return refused(state, reason);
  }
  const Slot resident = find_resident(state, object.digest, now_ms);
  if (resident != no_slot) {
    const ReserveResult result = present(state, resident, object.length, checksum);
    state.discard_reservation(slot);
    return result;
  }
  if (const Reason reason = check_place(state, object, now_ms); reason != Reason::none) {
    state.discard_reservation(slot);
    return refused(state, reason);
  }
  enter_member(state, slot, checksum, now_ms);
  ReserveResult result;
  result.status = Status::stored;
  result.generation = generation;
  result.extent = object.extent();
  result.present_checksum = checksum;
  result.present_length = object.length;
  return result;
}

Outcome ObjectTable::abort(ConnectionId connection, Generation generation) {
  TableState& state = *state_;
  const Slot slot = state.find_reservation(connection, generation);
  if (slot == no_slot) return {Status::refused, Reason::not_yours};
  const Object& object = state.objects[slot];
  const Reason reason = object.stage == Stage::detached ? object.detach_reason : Reason::none;
  state.discard_reservation(slot);
  ++state.counts.aborted_total;
  return reason == Reason::none ? Outcome{} : Outcome{Status::refused, reason};
}

void ObjectTable::quarantine_reservations_older_than(std::uint64_t reserved_before_ms) {
  TableState& state = *state_;
  while (!state.ages.empty() && state.ages.top_key() < reserved_before_ms) {
    state.detach(state.ages.top(), Reason::deadline);
  }
}

}  // namespace moonpool
