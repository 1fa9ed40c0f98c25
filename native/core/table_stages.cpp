// How objects move between their stages, and how room is found.
#include <algorithm>

#include "core/table_state.hpp"

namespace moonpool {

namespace {
// A call evicts at most this many objects (some milliseconds of work); a put that needs more is told no_room, and
// what was evicted helps the next one.
constexpr std::uint64_t evicted_count_max = 16'384;

std::uint32_t hash_of(const Digest& digest) { return static_cast<std::uint32_t>(digest.low); }
}  // namespace

bool TableState::allocate(std::uint64_t bytes, std::uint32_t arena_index, Extent& extent) {
  const std::optional<std::uint64_t> offset = arenas[arena_index].allocate(bytes);
  if (!offset) return false;
  extent.arena_index = arena_index;
  extent.offset = *offset + object_header_bytes;
  return true;
}

Slot TableState::next_victim(std::uint64_t now_ms) {
  while (!kept.empty() && kept.top_key() <= now_ms) {
    const Slot unit = kept.top();
    units[unit].keep_until_ms = 0;
    settle(unit);
  }
  return evictable.victim();
}

bool TableState::find_room(std::uint64_t bytes, std::uint32_t arena_preferred, std::uint64_t now_ms, Extent& extent) {
  const std::uint32_t arena_count = static_cast<std::uint32_t>(arenas.size());
  for (std::uint32_t step = 0; step < arena_count; ++step) {
    if (allocate(bytes, (arena_preferred % arena_count + step) % arena_count, extent)) return true;
  }
  const std::uint64_t evicted_before = counts.evicted_total;
  std::vector<std::uint32_t> freed_arenas;
  while (counts.evicted_total - evicted_before < evicted_count_max) {
    const Slot victim = next_victim(now_ms);
    if (victim == no_slot) return false;
    freed_arenas.clear();
    for (Slot member = units[victim].members; member != no_slot; member = objects[member].unit_link.after) {
      freed_arenas.push_back(objects[member].arena_index);
    }
    drop_unit(victim, Reason::evicted);
    for (std::uint32_t arena_index : freed_arenas) {
      if (allocate(bytes, arena_index, extent)) return true;
    }
  }
  return false;
}

void TableState::link_key(Slot slot) {
  Object& object = objects[slot];
  const Slot first = find_digest(object.digest);
  if (first == no_slot) {
    key_index.insert(hash_of(object.digest), slot);
    return;
  }
  object.key_link = {first, objects[first].key_link.after};
  if (object.key_link.after != no_slot) objects[object.key_link.after].key_link.before = slot;
  objects[first].key_link.after = slot;
}

void TableState::unlink_key(Slot slot) {
  Object& object = objects[slot];
  const Link links = object.key_link;
  if (links.before != no_slot) {
    objects[links.before].key_link.after = links.after;
  } else if (links.after != no_slot) {
    key_index.replace(hash_of(object.digest), slot, links.after);
  } else {
    key_index.erase(hash_of(object.digest), slot);
  }
  if (links.after != no_slot) objects[links.after].key_link.before = links.before;
  object.key_link = {};
}

void TableState::move_key_first(Slot slot) {
  if (objects[slot].key_link.before == no_slot) return;
  unlink_key(slot);
  const Slot first = find_digest(objects[slot].digest);
  key_index.replace(hash_of(objects[slot].digest), first, slot);
  objects[slot].key_link = {no_slot, first};
  objects[first].key_link.before = slot;
}

void TableState::detach(Slot slot, Reason reason) {
  Object& object = objects[slot];
  const Slot unit = object.unit;
  unlink_key(slot);
  unlink(objects, units[unit].reservations, slot, &Object::unit_link);
  --units[unit].reservation_count;
  keys.remove(object.key, object.key_bytes);
  ages.remove(slot);
  object.unit = no_slot;
  object.stage = Stage::detached;
  object.detach_reason = reason;
  const std::uint64_t bytes = object.space_bytes();
  counts.reserved_bytes -= bytes;
  counts.quarantined_bytes += bytes;
  --counts.reservation_count;
  ++counts.quarantined_count;
  Connection& writer = connections[object.writer];
  writer.detached_bytes += bytes;
  ++writer.detached_count;
  prune(unit);
}

void TableState::discard_reservation(Slot slot) {
  if (objects[slot].stage == Stage::reserved) detach(slot, Reason::none);
  Object& object = objects[slot];
  const std::uint64_t bytes = object.space_bytes();
  counts.quarantined_bytes -= bytes;
  --counts.quarantined_count;
  Connection& writer = connections[object.writer];
  unlink(objects, writer.reservations, slot, &Object::connection_link);
  writer.reserved_bytes -= bytes;
  writer.detached_bytes -= bytes;
  --writer.reservation_count;
  --writer.detached_count;
  free_object(slot);
}

void TableState::count_drop(Reason reason) {
  switch (reason) {
    case Reason::evicted: ++counts.evicted_total; break;
    case Reason::expired: ++counts.expired_total; break;
    case Reason::damaged: ++counts.damaged_total; break;
    default: ++counts.removed_total; break;
  }
}

void TableState::drop_member(Slot slot, Reason reason, bool announce) {
  Object& object = objects[slot];
  Unit& unit = units[object.unit];
  if (unit.visible && announce) events.push_back(event_of(slot, EventKind::removed, reason));
  if (unit.visible) residencies.push_back(residency_of(slot, false));
  why_log.record(object.digest, reason);
  count_drop(reason);
  const std::uint64_t bytes = object.space_bytes();
  counts.committed_bytes -= bytes;
  --counts.object_count;
  if (object.pinned) {
    object.pinned = false;
    counts.pinned_bytes -= bytes;
    --counts.pin_count;
    --unit.pinned_count;
  }
  if (object.hold_count > 0) --unit.held_count;
  unlink_key(slot);
  unlink(objects, unit.members, slot, &Object::unit_link);
  --unit.member_count;
  keys.remove(object.key, object.key_bytes);
  object.unit = no_slot;
  object.stage = Stage::vanished;
  if (object.hold_count == 0) free_object(slot);
}

void TableState::drop_members(Slot slot, Reason reason, bool announce) {
  Unit& unit = units[slot];
  while (unit.members != no_slot) drop_member(unit.members, reason, announce);
  unit.visible = false;
  unit.priority = 0;
  set_expiry(slot, 0);
  settle(slot);  // no members: it leaves the evictable and the kept ones
  unit.keep_until_ms = 0;
}

void TableState::drop_unit(Slot root, Reason reason, bool announce) {
  doomed.assign(1, root);
  for (std::size_t position = 0; position < doomed.size(); ++position) {
    for (Slot child = units[doomed[position]].first_child; child != no_slot; child = units[child].sibling_after) {
      // Below a unit without members there are only reservations; their commits will find no parent.
      if (units[child].member_count > 0) doomed.push_back(child);
    }
  }
  for (std::size_t position = doomed.size(); position-- > 0;) {
    drop_members(doomed[position], reason, announce);
    prune(doomed[position]);
  }
}

bool TableState::expire_if_due(Slot unit, std::uint64_t now_ms) {
  const std::uint64_t expires_at_ms = units[unit].expires_at_ms;
  if (expires_at_ms == 0 || expires_at_ms > now_ms) return false;
  drop_unit(unit, Reason::expired);
  return true;
}

void TableState::free_object(Slot slot) {
  Object& object = objects[slot];
  while (object.holds != no_slot) remove_hold_record(object.holds);
  arenas[object.arena_index].free(object.offset - object_header_bytes);
  freed.push_back(object.extent());
  const std::uint32_t sequence = object.sequence;
  object = Object{};
  object.sequence = sequence;
  // A generation is never used twice: a slot whose numbers are used up is given up.
  if (sequence == std::numeric_limits<std::uint32_t>::max()) {
    objects.retire();
  } else {
    objects.release(slot);
  }
}

}  // namespace moonpool
