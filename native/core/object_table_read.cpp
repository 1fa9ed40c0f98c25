// Reads: hold, release, revoke, peek, why.
#include <algorithm>

#include "core/table_state.hpp"

namespace moonpool {

namespace {

HoldResult hit(const TableState& state, Slot slot) {
  HoldResult result;
  result.status = Status::hit;
  result.generation = state.generation_of(slot);
  result.extent = state.objects[slot].extent();
  result.checksum = state.objects[slot].checksum;
  return result;
}

HoldResult missed(Reason reason) {
  HoldResult result;
  result.reason = reason;
  return result;
}

bool within_caps(const TableState& state, const Connection& reader, Slot slot, Slot record) {
  if (reader.hold_count >= state.limits.holds_per_connection_max) return false;
  if (record != no_slot && state.holds[record].active_count() > 0) return true;
  const std::uint64_t bytes = state.objects[slot].space_bytes();
  return reader.held_bytes + bytes <= state.limits.held_bytes_per_connection_max;
}

void add_hold(TableState& state, Connection& reader, Slot record, std::uint64_t deadline_ms) {
  HoldRecord& hold = state.holds[record];
  Object& object = state.objects[hold.object];
  const std::uint64_t bytes = object.space_bytes();
  if (hold.active_count() == 0) reader.held_bytes += bytes;
  if (object.hold_count == 0) {
    state.counts.held_bytes += bytes;
    ++state.units[object.unit].held_count;
  }
  if (deadline_ms == 0) {
    ++hold.view_count;
  } else {
    ++hold.copy_count;
    const bool has_deadline = state.hold_deadlines.contains(record);
    if (!has_deadline || state.hold_deadlines.key_of(record) < deadline_ms) {
      if (has_deadline) state.hold_deadlines.remove(record);
      state.hold_deadlines.push(deadline_ms, record);
    }
  }
  ++object.hold_count;
  ++reader.hold_count;
  ++state.counts.hold_count;
}

}  // namespace

HoldResult ObjectTable::hold(const Digest& digest, std::string_view key, std::uint64_t tenant_id,
                             ConnectionId connection, std::uint64_t deadline_ms, std::uint64_t now_ms) {
  TableState& state = *state_;
  Reason reason = Reason::none;
  const Slot slot = state.find_visible(digest, key, tenant_id, now_ms, reason);
  Connection& reader = state.connections[connection];
  Slot record = slot == no_slot ? no_slot : state.find_hold(slot, connection);
  if (slot != no_slot && !within_caps(state, reader, slot, record)) reason = Reason::connection_limit;
  if (reason != Reason::none) {
    ++state.counts.miss_total;
    return missed(reason);
  }
  if (record == no_slot) record = state.add_hold_record(slot, connection);
  add_hold(state, reader, record, deadline_ms);
  const Slot unit = state.objects[slot].unit;
  state.settle(unit);
  state.touch(unit);
  ++state.counts.hit_total;
  return hit(state, slot);
}

Outcome ObjectTable::release(ConnectionId connection, Generation generation) {
  TableState& state = *state_;
  const Slot slot = state.find_generation(generation);
  const Slot record = slot == no_slot ? no_slot : state.find_hold(slot, connection);
  if (record == no_slot) return {Status::refused, Reason::not_yours};
  HoldRecord& hold = state.holds[record];
  Outcome outcome;
  if (hold.revoked_count > 0) {
    --hold.revoked_count;
    outcome = {Status::refused, Reason::deadline};
  } else {
    if (hold.copy_count > 0) {
      if (--hold.copy_count == 0) state.hold_deadlines.remove(record);
    } else {
      --hold.view_count;
    }
    state.end_protection(record, 1);
  }
  state.tidy_hold(record);
  return outcome;
}

void ObjectTable::revoke_holds(std::uint64_t now_ms) {
  TableState& state = *state_;
  while (!state.hold_deadlines.empty() && state.hold_deadlines.top_key() <= now_ms) {
    const Slot record = state.hold_deadlines.top();
    state.hold_deadlines.remove(record);
    HoldRecord& hold = state.holds[record];
    const std::uint32_t count = hold.copy_count;
    hold.revoked_count += count;
    hold.copy_count = 0;
    state.end_protection(record, count);
    state.tidy_hold(record);
  }
}

HoldResult ObjectTable::touch(Generation generation, std::uint64_t tenant_id) {
  TableState& state = *state_;
  const Slot slot = state.find_generation(generation);
  if (slot == no_slot || state.objects[slot].stage != Stage::committed) return missed(Reason::none);
  const Slot unit = state.objects[slot].unit;
  if (!state.units[unit].visible || state.units[unit].tenant_id != tenant_id) return missed(Reason::none);
  state.touch(unit);
  ++state.counts.hit_total;
  return hit(state, slot);
}

HoldResult ObjectTable::peek(const Digest& digest, std::string_view key, std::uint64_t tenant_id,
                             std::uint64_t now_ms) {
  Reason reason = Reason::none;
  const Slot slot = state_->find_visible(digest, key, tenant_id, now_ms, reason);
  return slot == no_slot ? missed(reason) : hit(*state_, slot);
}

Reason ObjectTable::why(const Digest& digest) const {
  const TableState& state = *state_;
  const Slot slot = state.find_digest(digest);
  if (slot == no_slot) return state.why_log.find(digest);
  const Object& object = state.objects[slot];
  if (object.stage == Stage::reserved) return Reason::not_committed;
  return state.why_invisible(state.units[object.unit]);
}

}  // namespace moonpool
