// What belongs to one connection, and what becomes of it.
#include "core/table_state.hpp"

namespace moonpool {

namespace {

void let_go_all(TableState& state, Slot record) {
  HoldRecord& hold = state.holds[record];
  const std::uint32_t count = hold.active_count();
  hold.view_count = hold.copy_count = hold.revoked_count = 0;
  if (count > 0) state.end_protection(record, count);
  state.tidy_hold(record);
}

}  // namespace

void ObjectTable::drop_connection(ConnectionId connection) {
  TableState& state = *state_;
  const auto found = state.connections.find(connection);
  if (found == state.connections.end()) return;
  Connection& gone = found->second;
  while (gone.holds != no_slot) let_go_all(state, gone.holds);
  while (gone.reservations != no_slot) {
    state.discard_reservation(gone.reservations);
    ++state.counts.aborted_total;
  }
  state.connections.erase(found);
}

void ObjectTable::quarantine_connection(ConnectionId connection) {
  TableState& state = *state_;
  const auto found = state.connections.find(connection);
  if (found == state.connections.end()) return;
  Slot slot = found->second.reservations;
  for (; slot != no_slot; slot = state.objects[slot].connection_link.after) {
    if (state.objects[slot].stage == Stage::reserved) state.detach(slot, Reason::deadline);
  }
}

ObjectTable::ConnectionStats ObjectTable::connection_stats(ConnectionId connection) const {
  const TableState& state = *state_;
  ConnectionStats stats;
  const auto found = state.connections.find(connection);
  if (found == state.connections.end()) return stats;
  const Connection& record = found->second;
  stats.held_bytes = record.held_bytes;
  stats.reserved_bytes = record.reserved_bytes - record.detached_bytes;
  stats.quarantined_bytes = record.detached_bytes;
  stats.hold_count = record.hold_count;
  stats.reservation_count = record.reservation_count - record.detached_count;
  stats.quarantined_count = record.detached_count;
  return stats;
}

HoldResult ObjectTable::held(ConnectionId connection, Generation generation) const {
  const TableState& state = *state_;
  HoldResult result;
  result.reason = Reason::not_yours;
  const Slot slot = state.find_generation(generation);
  const Slot record = slot == no_slot ? no_slot : state.find_hold(slot, connection);
  if (record == no_slot) return result;
  if (state.holds[record].active_count() == 0) {
    result.reason = Reason::deadline;
    return result;
  }
  const Object& object = state.objects[slot];
  return {Status::hit, Reason::none, generation, object.extent(), object.checksum};
}

ReserveResult ObjectTable::reserved(ConnectionId connection, Generation generation) const {
  const TableState& state = *state_;
  ReserveResult result;
  const Slot slot = state.find_reservation(connection, generation);
  const Object* object = slot == no_slot ? nullptr : &state.objects[slot];
  if (object == nullptr || object->stage == Stage::detached) {
    result.reason = object == nullptr ? Reason::not_yours : object->detach_reason;
    return result;
  }
  result.status = Status::stored;
  result.generation = generation;
  result.extent = object->extent();
  return result;
}

}  // namespace moonpool
