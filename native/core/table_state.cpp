#include "core/table_state.hpp"

#include <algorithm>

namespace moonpool {

namespace {
constexpr unsigned sequence_shift = 32;

std::uint32_t hash_of(const Digest& digest) { return static_cast<std::uint32_t>(digest.low); }
}  // namespace

TableState::TableState(const std::vector<std::uint64_t>& arena_bytes, TableLimits table_limits)
    : limits(table_limits), why_log(table_limits.why_count_max) {
  for (std::uint64_t bytes : arena_bytes) {
    arenas.emplace_back(bytes);
    capacity_bytes += arenas.back().capacity_bytes();
    largest_arena_bytes = std::max(largest_arena_bytes, arenas.back().capacity_bytes());
  }
  for (std::uint64_t* limit :
       {&limits.held_bytes_per_connection_max, &limits.reserved_bytes_per_connection_max, &limits.pinned_bytes_max}) {
    if (*limit == 0) *limit = capacity_bytes / 2;
  }
  counts.capacity_bytes = capacity_bytes;
}

std::uint64_t TableState::space_bytes_of(std::uint64_t length) {
  const std::uint64_t granules = length / allocation_align_bytes + (length % allocation_align_bytes != 0);
  return granules * allocation_align_bytes + object_header_bytes;
}

std::uint64_t Object::space_bytes() const { return TableState::space_bytes_of(length); }

Generation TableState::generation_of(Slot slot) const {
  return (Generation{objects[slot].sequence} << sequence_shift) | slot;
}

Slot TableState::find_generation(Generation generation) const {
  const Slot slot = static_cast<Slot>(generation);
  if (slot >= objects.end()) return no_slot;
  const Object& object = objects[slot];
  return object.stage != Stage::free && object.sequence == generation >> sequence_shift ? slot : no_slot;
}

Slot TableState::find_reservation(ConnectionId connection, Generation generation) const {
  const Slot slot = find_generation(generation);
  if (slot == no_slot) return no_slot;
  const Object& object = objects[slot];
  const bool is_reservation = object.stage == Stage::reserved || object.stage == Stage::detached;
  return is_reservation && object.writer == connection ? slot : no_slot;
}

Slot TableState::find_digest(const Digest& digest) const {
  return key_index.find(hash_of(digest), [&](Slot slot) { return objects[slot].digest == digest; });
}

bool TableState::same_key(Slot slot, std::string_view key, std::uint64_t tenant_id) const {
  const Object& object = objects[slot];
  return units[object.unit].tenant_id == tenant_id && keys.view(object.key, object.key_bytes) == key;
}

Reason TableState::why_invisible(const Unit& unit) const {
  if (unit.visible) return Reason::none;
  return unit.complete() ? Reason::no_parent : Reason::incomplete_bundle;
}

Slot TableState::find_visible(const Digest& digest, std::string_view key, std::uint64_t tenant_id, std::uint64_t now_ms,
                              Reason& reason) {
  const Slot slot = find_digest(digest);
  if (slot == no_slot) {
    reason = why_log.find(digest);
    return no_slot;
  }
  const Object& object = objects[slot];
  if (!same_key(slot, key, tenant_id)) {
    // Another tenant learns nothing, not even that the digest is taken.
    reason = units[object.unit].tenant_id == tenant_id ? Reason::digest_collision : Reason::never_stored;
  } else if (object.stage == Stage::reserved) {
    reason = Reason::not_committed;
  } else if (const Slot unit = object.unit; expire_if_due(unit, now_ms)) {
    reason = Reason::expired;
  } else {
    reason = why_invisible(units[unit]);
  }
  return reason == Reason::none ? slot : no_slot;
}

Tag TableState::tag_of(Slot slot) const {
  const Object& object = objects[slot];
  const Unit& unit = units[object.unit];
  if (unit.namespace_id == 0) return {};
  Tag tag;
  tag.namespace_id = unit.namespace_id;
  tag.block_hash = unit.name;
  tag.parent_hash = unit.parent_hash;
  tag.shard_index = object.shard_index;
  tag.shard_count = unit.shard_count;
  tag.bundle_count = unit.bundle_count;
  tag.kv_group = unit.kv_group;
  tag.chained = unit.chained;
  return tag;
}

Event TableState::event_of(Slot slot, EventKind kind, Reason reason) const {
  Event event;
  event.kind = kind;
  event.digest = objects[slot].digest;
  event.tag = tag_of(slot);
  event.tenant_id = units[objects[slot].unit].tenant_id;
  event.length = objects[slot].length;
  event.reason = reason;
  return event;
}

Residency TableState::residency_of(Slot slot, bool visible) const {
  const Unit& unit = units[objects[slot].unit];
  Residency residency;
  residency.visible = visible;
  residency.expires = unit.expires_at_ms != 0;
  residency.checksum = objects[slot].checksum;
  residency.tenant_id = unit.tenant_id;
  residency.digest = objects[slot].digest;
  residency.generation = generation_of(slot);
  residency.extent = objects[slot].extent();
  return residency;
}

void TableState::touch(Slot unit) {
  units[unit].last_use = ++use_count;
  if (!evictable.contains(unit)) return;
  evictable.remove(unit);
  evictable.add(unit, units[unit].priority, use_count);
}

void TableState::settle(Slot slot) {
  const Unit& unit = units[slot];
  const bool may_go = unit.evictable();
  const bool is_kept = may_go && unit.keep_until_ms != 0;
  if (is_kept != kept.contains(slot)) {
    if (is_kept) {
      kept.push(unit.keep_until_ms, slot);
    } else {
      kept.remove(slot);
    }
  }
  if (may_go && !is_kept) {
    if (!evictable.contains(slot)) evictable.add(slot, unit.priority, unit.last_use);
  } else {
    evictable.remove(slot);
  }
}

void TableState::set_expiry(Slot unit, std::uint64_t expires_at_ms) {
  if (expirations.contains(unit)) expirations.remove(unit);
  units[unit].expires_at_ms = expires_at_ms;
  if (expires_at_ms != 0) expirations.push(expires_at_ms, unit);
}

void TableState::show(Slot first) {
  waiting.assign(1, first);
  while (!waiting.empty()) {
    const Slot slot = waiting.back();
    waiting.pop_back();
    Unit& unit = units[slot];
    if (unit.visible || !unit.complete()) continue;
    if (unit.parent != no_slot) {
      const Unit& parent = units[unit.parent];
      if (!parent.visible) continue;
      // A block is useless without its parent, so it does not outlive it either.
      const std::uint64_t parent_expiry = parent.expires_at_ms;
      if (parent_expiry != 0 && (unit.expires_at_ms == 0 || parent_expiry < unit.expires_at_ms))
        set_expiry(slot, parent_expiry);
    }
    unit.visible = true;
    for (Slot member = unit.members; member != no_slot; member = objects[member].unit_link.after) {
      events.push_back(event_of(member, EventKind::stored, Reason::none));
      residencies.push_back(residency_of(member, true));
    }
    for (Slot child = unit.first_child; child != no_slot; child = units[child].sibling_after) waiting.push_back(child);
  }
}

void TableState::prune(Slot unit) {
  while (unit != no_slot && units[unit].empty()) {
    const Slot parent = units[unit].parent;
    units.destroy(unit);
    unit = parent;
  }
  if (unit != no_slot) settle(unit);
}

}  // namespace moonpool
