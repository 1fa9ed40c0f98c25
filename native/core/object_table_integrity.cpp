// Counts everything again, the slow way, and compares.
#include <algorithm>

#include "core/table_state.hpp"

namespace moonpool {

namespace {

using Problem = std::string;

struct Sums {
  TableStats stats{};
  std::uint64_t used_bytes = 0;
  std::uint64_t indexed_count = 0;
  std::uint64_t hold_record_count = 0;
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> ranges;  // by arena: begin, end
};

Problem check_holds_of(const TableState& state, Slot slot, Sums& sums) {
  const Object& object = state.objects[slot];
  std::uint32_t active_count = 0;
  for (Slot record = object.holds; record != no_slot; record = state.holds[record].object_link.after) {
    const HoldRecord& hold = state.holds[record];
    if (++sums.hold_record_count > state.holds.count()) return "holds: a list is too long";
    if (hold.object != slot) return "holds: a record in a foreign list";
    if (hold.active_count() + hold.revoked_count == 0) return "holds: a record of nothing";
    if ((hold.copy_count > 0) != state.hold_deadlines.contains(record)) return "holds: a deadline is missing or left";
    active_count += hold.active_count();
  }
  if (active_count != object.hold_count) return "holds: an object's count is wrong";
  sums.stats.hold_count += active_count;
  if (active_count > 0) sums.stats.held_bytes += object.space_bytes();
  if (object.stage == Stage::vanished && active_count == 0) return "objects: vanished and not held, but not freed";
  return {};
}

void add_to_sums(const Object& object, Sums& sums) {
  const std::uint64_t bytes = object.space_bytes();
  const std::uint64_t begin = object.offset - object_header_bytes;
  sums.ranges[object.arena_index].emplace_back(begin, begin + bytes);
  sums.used_bytes += bytes;
  sums.indexed_count += object.stage == Stage::reserved || object.stage == Stage::committed;
  if (object.stage == Stage::reserved) {
    ++sums.stats.reservation_count;
    sums.stats.reserved_bytes += bytes;
  } else if (object.stage == Stage::detached) {
    ++sums.stats.quarantined_count;
    sums.stats.quarantined_bytes += bytes;
  } else if (object.stage == Stage::committed) {
    ++sums.stats.object_count;
    sums.stats.committed_bytes += bytes;
  }
  if (object.pinned) {
    ++sums.stats.pin_count;
    sums.stats.pinned_bytes += bytes;
  }
}

Problem check_objects(const TableState& state, Sums& sums) {
  std::size_t count = 0;
  for (Slot slot = 0; slot < state.objects.end(); ++slot) {
    const Object& object = state.objects[slot];
    if (object.stage == Stage::free) continue;
    ++count;
    if (object.arena_index >= state.arenas.size()) return "objects: no such arena";
    add_to_sums(object, sums);
    if (object.pinned && object.stage != Stage::committed) return "objects: a pin on what is not committed";
    if ((object.stage == Stage::reserved) != state.ages.contains(slot)) return "objects: an age is missing or left";
    const bool in_unit = object.stage == Stage::reserved || object.stage == Stage::committed;
    if (in_unit != (object.unit != no_slot)) return "objects: in a unit at the wrong stage";
    if (Problem problem = check_holds_of(state, slot, sums); !problem.empty()) return problem;
  }
  return count == state.objects.count() ? Problem{} : "objects: the count is wrong";
}

Problem check_space(const TableState& state, Sums& sums) {
  std::uint64_t used_bytes = 0;
  for (std::size_t index = 0; index < state.arenas.size(); ++index) {
    if (Problem problem = state.arenas[index].check_integrity(); !problem.empty()) return problem;
    used_bytes += state.arenas[index].used_bytes();
    auto& ranges = sums.ranges[index];
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t position = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin < position) return "space: two objects overlap";
      position = end;
    }
    if (position > state.arenas[index].capacity_bytes()) return "space: an object lies past its arena";
  }
  return used_bytes == sums.used_bytes ? Problem{} : "space: the allocators and the objects differ";
}

Problem check_sums(const TableState& state, const Sums& sums) {
  const TableStats& counted = state.counts;
  const TableStats& summed = sums.stats;
  if (counted.object_count != summed.object_count || counted.committed_bytes != summed.committed_bytes)
    return "counts: committed objects";
  if (counted.reservation_count != summed.reservation_count || counted.reserved_bytes != summed.reserved_bytes)
    return "counts: reservations";
  if (counted.quarantined_count != summed.quarantined_count || counted.quarantined_bytes != summed.quarantined_bytes)
    return "counts: quarantine";
  if (counted.hold_count != summed.hold_count || counted.held_bytes != summed.held_bytes) return "counts: holds";
  if (counted.pin_count != summed.pin_count || counted.pinned_bytes != summed.pinned_bytes) return "counts: pins";
  return sums.hold_record_count == state.holds.count() ? Problem{} : "counts: hold records";
}

// Every indexed object is reached from its index entry, at most one of a key is committed, and it comes first.
Problem check_keys(const TableState& state, const Sums& sums) {
  Problem problem;
  std::uint64_t reached_count = 0;
  state.key_index.for_each([&](std::uint32_t hash, Slot first) {
    Slot before = no_slot;
    for (Slot slot = first; slot != no_slot && problem.empty(); slot = state.objects[slot].key_link.after) {
      const Object& object = state.objects[slot];
      if (++reached_count > sums.indexed_count)
        problem = "keys: a list is too long";
      else if (object.unit == no_slot || object.key_link.before != before)
        problem = "keys: a list is broken";
      else if (static_cast<std::uint32_t>(object.digest.low) != hash)
        problem = "keys: a wrong hash";
      else if (object.digest != state.objects[first].digest)
        problem = "keys: two digests in one list";
      else if (object.stage == Stage::committed && slot != first)
        problem = "keys: a committed object is not first";
      before = slot;
    }
  });
  if (!problem.empty()) return problem;
  return reached_count == sums.indexed_count ? Problem{} : "keys: an object cannot be found";
}

Problem check_members(const TableState& state, Slot slot) {
  const Unit& unit = state.units[slot];
  std::uint32_t member_count = 0, held_count = 0, pinned_count = 0, reservation_count = 0;
  for (Slot member = unit.members; member != no_slot; member = state.objects[member].unit_link.after) {
    const Object& object = state.objects[member];
    if (++member_count > unit.member_count || object.unit != slot || object.stage != Stage::committed)
      return "units: the members are wrong";
    held_count += object.hold_count > 0;
    pinned_count += object.pinned;
  }
  for (Slot member = unit.reservations; member != no_slot; member = state.objects[member].unit_link.after) {
    const Object& object = state.objects[member];
    if (++reservation_count > unit.reservation_count || object.unit != slot || object.stage != Stage::reserved)
      return "units: the reservations are wrong";
  }
  if (member_count != unit.member_count || reservation_count != unit.reservation_count)
    return "units: a count is wrong";
  if (held_count != unit.held_count || pinned_count != unit.pinned_count) return "units: holds or pins are wrong";
  return {};
}

Problem check_place(const TableState& state, Slot slot) {
  const Unit& unit = state.units[slot];
  const bool parent_visible = unit.parent == no_slot || state.units[unit.parent].visible;
  if (unit.visible != (unit.complete() && parent_visible)) return "units: visibility is wrong";
  const bool is_kept = unit.evictable() && unit.keep_until_ms != 0;
  if (state.kept.contains(slot) != is_kept) return "units: kept wrongly";
  if (state.evictable.contains(slot) != (unit.evictable() && !is_kept)) return "units: evictable wrongly";
  if (is_kept && state.kept.key_of(slot) != unit.keep_until_ms) return "units: the end of a keep is wrong";
  if (state.expirations.contains(slot) != (unit.expires_at_ms != 0)) return "units: an expiry is missing or left";
  if (unit.expires_at_ms != 0 && state.expirations.key_of(slot) != unit.expires_at_ms)
    return "units: an expiry is wrong";
  return {};
}

Problem check_units(const TableState& state) {
  if (Problem problem = state.units.check_integrity(); !problem.empty()) return problem;
  std::size_t evictable_count = 0, kept_count = 0, expiring_count = 0;
  for (Slot slot = 0; slot < state.units.end(); ++slot) {
    if (!state.units[slot].in_use) continue;
    if (Problem problem = check_members(state, slot); !problem.empty()) return problem;
    if (Problem problem = check_place(state, slot); !problem.empty()) return problem;
    evictable_count += state.evictable.contains(slot);
    kept_count += state.kept.contains(slot);
    expiring_count += state.expirations.contains(slot);
  }
  if (evictable_count != state.evictable.count() || kept_count != state.kept.count() ||
      expiring_count != state.expirations.count())
    return "units: a destroyed unit is still queued";
  return {};
}

Problem check_connection(const TableState& state, ConnectionId id, const Connection& connection) {
  std::uint64_t reserved_bytes = 0, detached_bytes = 0, held_bytes = 0;
  std::uint32_t reservation_count = 0, detached_count = 0, hold_count = 0;
  for (Slot slot = connection.reservations; slot != no_slot; slot = state.objects[slot].connection_link.after) {
    const Object& object = state.objects[slot];
    if (++reservation_count > connection.reservation_count || object.writer != id)
      return "connections: the reservations are wrong";
    reserved_bytes += object.space_bytes();
    if (object.stage != Stage::detached) continue;
    detached_bytes += object.space_bytes();
    ++detached_count;
  }
  for (Slot record = connection.holds; record != no_slot; record = state.holds[record].connection_link.after) {
    const HoldRecord& hold = state.holds[record];
    if (hold.connection != id || hold.object == no_slot) return "connections: the holds are wrong";
    hold_count += hold.active_count();
    if (hold.active_count() > 0) held_bytes += state.objects[hold.object].space_bytes();
  }
  if (reservation_count != connection.reservation_count || hold_count != connection.hold_count ||
      detached_count != connection.detached_count)
    return "connections: a count is wrong";
  if (reserved_bytes != connection.reserved_bytes || held_bytes != connection.held_bytes ||
      detached_bytes != connection.detached_bytes)
    return "connections: bytes are wrong";
  return {};
}

Problem check_connections(const TableState& state) {
  std::uint64_t reservation_count = 0, hold_count = 0;
  for (const auto& [id, connection] : state.connections) {
    if (Problem problem = check_connection(state, id, connection); !problem.empty()) return problem;
    reservation_count += connection.reservation_count;
    hold_count += connection.hold_count;
  }
  if (reservation_count != state.counts.reservation_count + state.counts.quarantined_count)
    return "connections: a reservation belongs to nobody";
  return hold_count == state.counts.hold_count ? Problem{} : "connections: a hold belongs to nobody";
}

}  // namespace

std::string ObjectTable::check_integrity() const {
  const TableState& state = *state_;
  Sums sums;
  sums.ranges.resize(state.arenas.size());
  for (const IndexedHeap* heap : {&state.kept, &state.expirations, &state.hold_deadlines, &state.ages}) {
    if (Problem problem = heap->check_integrity(); !problem.empty()) return problem;
  }
  if (Problem problem = state.evictable.check_integrity(); !problem.empty()) return problem;
  if (Problem problem = check_objects(state, sums); !problem.empty()) return problem;
  if (Problem problem = check_space(state, sums); !problem.empty()) return problem;
  if (Problem problem = check_sums(state, sums); !problem.empty()) return problem;
  if (Problem problem = check_keys(state, sums); !problem.empty()) return problem;
  if (Problem problem = check_units(state); !problem.empty()) return problem;
  return check_connections(state);
}

}  // namespace moonpool
