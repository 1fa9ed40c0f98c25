// The table's remaining verbs: removal, pins, clearing, listing.
#include "core/object_table.hpp"

#include <algorithm>

#include "core/table_state.hpp"

namespace moonpool {

namespace {
// A listing that matches little still ends: this many slots are looked at in one call.
constexpr std::uint64_t listed_slot_count_max = 65'536;

template <typename Value>
void take(std::vector<Value>& from, std::vector<Value>& into) {
  if (into.empty()) {
    into.swap(from);
    return;
  }
  into.insert(into.end(), from.begin(), from.end());
  from.clear();
}
}  // namespace

ObjectTable::ObjectTable(const std::vector<std::uint64_t>& arena_bytes, TableLimits limits)
    : state_(std::make_unique<TableState>(arena_bytes, limits)) {}
ObjectTable::~ObjectTable() = default;
ObjectTable::ObjectTable(ObjectTable&&) noexcept = default;
ObjectTable& ObjectTable::operator=(ObjectTable&&) noexcept = default;

Outcome ObjectTable::remove(const Digest& digest, std::string_view key, std::uint64_t tenant_id, Reason reason,
                            std::uint64_t now_ms) {
  TableState& state = *state_;
  const Slot slot = state.find_digest(digest);
  Reason why_not = Reason::none;
  // An object that waits for the rest of its bundle can be removed as well.
  if (state.find_visible(digest, key, tenant_id, now_ms, why_not) == no_slot && why_not != Reason::incomplete_bundle &&
      why_not != Reason::no_parent)
    return {Status::miss, why_not};
  state.drop_unit(state.objects[slot].unit, reason);
  return {};
}

Outcome ObjectTable::pin(const Digest& digest, std::string_view key, std::uint64_t tenant_id, std::uint64_t now_ms) {
  TableState& state = *state_;
  Reason reason = Reason::none;
  const Slot slot = state.find_visible(digest, key, tenant_id, now_ms, reason);
  if (slot == no_slot) return {Status::miss, reason};
  Object& object = state.objects[slot];
  if (object.pinned) return {};
  const std::uint64_t bytes = object.space_bytes();
  if (state.counts.pinned_bytes + bytes > state.limits.pinned_bytes_max)
    return {Status::refused, Reason::connection_limit};
  object.pinned = true;
  state.counts.pinned_bytes += bytes;
  ++state.counts.pin_count;
  ++state.units[object.unit].pinned_count;
  state.settle(object.unit);
  return {};
}

Outcome ObjectTable::unpin(const Digest& digest, std::string_view key, std::uint64_t tenant_id) {
  TableState& state = *state_;
  const Slot slot = state.find_digest(digest);
  if (slot == no_slot || !state.same_key(slot, key, tenant_id)) return {Status::miss, state.why_log.find(digest)};
  Object& object = state.objects[slot];
  if (object.stage == Stage::reserved) return {Status::miss, Reason::not_committed};
  if (!object.pinned) return {};
  object.pinned = false;
  state.counts.pinned_bytes -= object.space_bytes();
  --state.counts.pin_count;
  --state.units[object.unit].pinned_count;
  state.touch(object.unit);
  state.settle(object.unit);
  return {};
}

std::uint64_t ObjectTable::clear(std::uint64_t namespace_id, std::uint64_t) {
  TableState& state = *state_;
  const std::uint64_t object_count_before = state.counts.object_count;
  const auto concerns = [&](const Unit& unit) {
    return unit.in_use && (namespace_id == 0 || unit.namespace_id == namespace_id);
  };
  for (Slot slot = 0; slot < state.units.end(); ++slot) {
    const Unit& unit = state.units[slot];
    // From the roots, so that children go before their parents. One event says it all when everything goes.
    if (concerns(unit) && unit.parent == no_slot) state.drop_unit(slot, Reason::cleared, namespace_id != 0);
  }
  for (Slot slot = 0; slot < state.units.end(); ++slot) {
    // What is still being written belongs to the time before: it must not appear afterwards. The last detach
    // destroys the unit.
    const Unit& unit = state.units[slot];
    while (concerns(unit) && unit.reservations != no_slot) state.detach(unit.reservations, Reason::cleared);
  }
  if (namespace_id == 0) {
    Event event;
    event.kind = EventKind::cleared;
    event.reason = Reason::cleared;
    state.events.push_back(event);
  }
  return object_count_before - state.counts.object_count;
}

void ObjectTable::expire(std::uint64_t now_ms, std::uint32_t count_max) {
  TableState& state = *state_;
  for (std::uint32_t count = 0; count < count_max && !state.expirations.empty(); ++count) {
    if (!state.expire_if_due(state.expirations.top(), now_ms)) return;
  }
}

void ObjectTable::take_events(std::vector<Event>& into) { take(state_->events, into); }

void ObjectTable::take_residencies(std::vector<Residency>& into) { take(state_->residencies, into); }

void ObjectTable::take_freed(std::vector<Extent>& into) { take(state_->freed, into); }

std::uint64_t ObjectTable::snapshot(std::uint64_t cursor, std::uint32_t count_max, std::vector<Event>& into) const {
  const TableState& state = *state_;
  const std::uint64_t end = std::min<std::uint64_t>(state.objects.end(), cursor + count_max);
  for (; cursor < end; ++cursor) {
    const Slot slot = static_cast<Slot>(cursor);
    const Object& object = state.objects[slot];
    if (object.stage != Stage::committed || !state.units[object.unit].visible) continue;
    into.push_back(state.event_of(slot, EventKind::stored, Reason::none));
  }
  return cursor < state.objects.end() ? cursor : 0;
}

std::uint64_t ObjectTable::list(std::uint64_t tenant_id, std::string_view prefix, std::uint64_t cursor,
                                std::uint32_t count_max, std::uint64_t now_ms, std::vector<Listed>& into) const {
  const TableState& state = *state_;
  const std::uint64_t end = std::min<std::uint64_t>(state.objects.end(), cursor + listed_slot_count_max);
  for (std::uint32_t count = 0; cursor < end && count < count_max; ++cursor) {
    const Slot slot = static_cast<Slot>(cursor);
    const Object& object = state.objects[slot];
    if (object.stage != Stage::committed) continue;
    const Unit& unit = state.units[object.unit];
    const bool expired = unit.expires_at_ms != 0 && unit.expires_at_ms <= now_ms;
    if (!unit.visible || unit.tenant_id != tenant_id || expired) continue;
    const std::string_view key = state.keys.view(object.key, object.key_bytes);
    if (!key.starts_with(prefix)) continue;
    const std::uint64_t age_ms = now_ms - std::min(now_ms, object.time_ms);
    into.push_back({std::string(key), object.length, state.tag_of(slot), object.pinned, object.checksum, age_ms});
    ++count;
  }
  return cursor < state.objects.end() ? cursor : 0;
}

TableStats ObjectTable::stats() const {
  TableStats stats = state_->counts;
  stats.used_bytes = 0;
  for (const Allocator& arena : state_->arenas) stats.used_bytes += arena.used_bytes();
  return stats;
}

}  // namespace moonpool
