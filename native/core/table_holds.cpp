// Records of who holds what.
#include "core/table_state.hpp"

namespace moonpool {

Slot TableState::find_hold(Slot object, ConnectionId connection) const {
  Slot record = objects[object].holds;
  while (record != no_slot && holds[record].connection != connection) record = holds[record].object_link.after;
  return record;
}

Slot TableState::add_hold_record(Slot object, ConnectionId connection) {
  const Slot record = holds.acquire();
  holds[record] = HoldRecord{};
  holds[record].connection = connection;
  holds[record].object = object;
  link_front(holds, objects[object].holds, record, &HoldRecord::object_link);
  link_front(holds, connections[connection].holds, record, &HoldRecord::connection_link);
  return record;
}

void TableState::remove_hold_record(Slot record) {
  HoldRecord& hold = holds[record];
  if (hold_deadlines.contains(record)) hold_deadlines.remove(record);
  unlink(holds, objects[hold.object].holds, record, &HoldRecord::object_link);
  unlink(holds, connections[hold.connection].holds, record, &HoldRecord::connection_link);
  hold.object = no_slot;
  holds.release(record);
}

void TableState::end_protection(Slot record, std::uint32_t count) {
  const HoldRecord& hold = holds[record];
  const Slot slot = hold.object;
  Object& object = objects[slot];
  Connection& connection = connections[hold.connection];
  const std::uint64_t bytes = object.space_bytes();
  connection.hold_count -= count;
  if (hold.active_count() == 0) connection.held_bytes -= bytes;
  counts.hold_count -= count;
  object.hold_count -= count;
  if (object.hold_count > 0) return;
  counts.held_bytes -= bytes;
  if (object.stage == Stage::vanished) return;
  --units[object.unit].held_count;
  touch(object.unit);
  settle(object.unit);
}

void TableState::tidy_hold(Slot record) {
  const HoldRecord& hold = holds[record];
  const Slot slot = hold.object;
  if (hold.active_count() == 0 && hold.revoked_count == 0) remove_hold_record(record);
  const Object& object = objects[slot];
  if (object.stage == Stage::vanished && object.hold_count == 0) free_object(slot);
}

}  // namespace moonpool
