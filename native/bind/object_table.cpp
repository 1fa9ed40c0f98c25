#include "core/object_table.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/binders.hpp"
#include "core/siphash.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

// Tests need no secret, only the same digest for the same key.
constexpr SipKey test_key{};

std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

Digest digest_of(const nb::bytes& key, std::uint64_t tenant_id) {
  return key_digest(test_key, tenant_id, view_of(key));
}

template <typename Number>
void read_number(const nb::handle& value, Number& into) {
  into = nb::cast<Number>(value);
}

// Takes the number named by `name` out of a dict of options; unknown names are errors.
void set_limit(TableLimits& limits, const std::string& name, nb::handle value) {
  if (name == "object_count_max") return read_number(value, limits.object_count_max);
  if (name == "held_bytes_per_connection_max") return read_number(value, limits.held_bytes_per_connection_max);
  if (name == "reserved_bytes_per_connection_max") return read_number(value, limits.reserved_bytes_per_connection_max);
  if (name == "pinned_bytes_max") return read_number(value, limits.pinned_bytes_max);
  if (name == "holds_per_connection_max") return read_number(value, limits.holds_per_connection_max);
  if (name == "reservations_per_connection_max") return read_number(value, limits.reservations_per_connection_max);
  if (name == "why_count_max") return read_number(value, limits.why_count_max);
  throw nb::value_error(("unknown limit: " + name).c_str());
}

void set_option(PutSpec& spec, std::uint32_t& arena_preferred, const std::string& name, nb::handle value) {
  if (name == "tenant_id") return read_number(value, spec.tenant_id);
  if (name == "namespace_id") return read_number(value, spec.tag.namespace_id);
  if (name == "block_hash") return read_number(value, spec.tag.block_hash);
  if (name == "parent_hash") return read_number(value, spec.tag.parent_hash);
  if (name == "shard_index") return read_number(value, spec.tag.shard_index);
  if (name == "shard_count") return read_number(value, spec.tag.shard_count);
  if (name == "kv_group") return read_number(value, spec.tag.kv_group);
  if (name == "chained") return read_number(value, spec.tag.chained);
  if (name == "bundle_id") return read_number(value, spec.bundle_id);
  if (name == "priority") return read_number(value, spec.priority);
  if (name == "keep_at_least_ms") return read_number(value, spec.keep_at_least_ms);
  if (name == "keep_at_most_ms") return read_number(value, spec.keep_at_most_ms);
  if (name == "arena_preferred") return read_number(value, arena_preferred);
  if (name == "bundle_count") {
    read_number(value, spec.bundle_count);
    return read_number(value, spec.tag.bundle_count);
  }
  throw nb::value_error(("unknown option of a put: " + name).c_str());
}

nb::dict dict_of(const Extent& extent) {
  nb::dict result;
  result["arena_index"] = extent.arena_index;
  result["offset"] = extent.offset;
  result["length"] = extent.length;
  return result;
}

nb::dict dict_of(const ReserveResult& reserved) {
  nb::dict result;
  result["status"] = static_cast<int>(reserved.status);
  result["reason"] = static_cast<int>(reserved.reason);
  result["generation"] = reserved.generation;
  result["extent"] = dict_of(reserved.extent);
  result["present_checksum"] = reserved.present_checksum;
  result["present_length"] = reserved.present_length;
  return result;
}

nb::dict dict_of(const HoldResult& held) {
  nb::dict result;
  result["status"] = static_cast<int>(held.status);
  result["reason"] = static_cast<int>(held.reason);
  result["generation"] = held.generation;
  result["extent"] = dict_of(held.extent);
  result["checksum"] = held.checksum;
  return result;
}

nb::dict dict_of(const Outcome& outcome) {
  nb::dict result;
  result["status"] = static_cast<int>(outcome.status);
  result["reason"] = static_cast<int>(outcome.reason);
  return result;
}

nb::bytes bytes_of(const Digest& digest) {
  std::array<std::byte, sizeof(Digest)> bytes{};
  for (unsigned index = 0; index < 8; ++index) {
    bytes[index] = static_cast<std::byte>(digest.low >> (8 * index));
    bytes[8 + index] = static_cast<std::byte>(digest.high >> (8 * index));
  }
  return nb::bytes(bytes.data(), bytes.size());
}

nb::dict dict_of(const Event& event) {
  nb::dict result;
  result["kind"] = static_cast<int>(event.kind);
  result["digest"] = bytes_of(event.digest);
  result["tenant_id"] = event.tenant_id;
  result["length"] = event.length;
  result["tier_mask"] = event.tier_mask;
  result["reason"] = static_cast<int>(event.reason);
  result["namespace_id"] = event.tag.namespace_id;
  result["block_hash"] = event.tag.block_hash;
  result["parent_hash"] = event.tag.parent_hash;
  result["shard_index"] = event.tag.shard_index;
  result["shard_count"] = event.tag.shard_count;
  result["bundle_count"] = event.tag.bundle_count;
  result["kv_group"] = event.tag.kv_group;
  result["chained"] = event.tag.chained;
  return result;
}

nb::list list_of(const std::vector<Event>& events) {
  nb::list result;
  for (const Event& event : events) result.append(dict_of(event));
  return result;
}

nb::dict dict_of(const TableStats& stats) {
  nb::dict result;
  result["capacity_bytes"] = stats.capacity_bytes;
  result["used_bytes"] = stats.used_bytes;
  result["committed_bytes"] = stats.committed_bytes;
  result["reserved_bytes"] = stats.reserved_bytes;
  result["held_bytes"] = stats.held_bytes;
  result["pinned_bytes"] = stats.pinned_bytes;
  result["quarantined_bytes"] = stats.quarantined_bytes;
  result["object_count"] = stats.object_count;
  result["reservation_count"] = stats.reservation_count;
  result["hold_count"] = stats.hold_count;
  result["pin_count"] = stats.pin_count;
  result["quarantined_count"] = stats.quarantined_count;
  result["stored_total"] = stats.stored_total;
  result["present_total"] = stats.present_total;
  result["conflict_total"] = stats.conflict_total;
  result["no_room_total"] = stats.no_room_total;
  result["refused_total"] = stats.refused_total;
  result["hit_total"] = stats.hit_total;
  result["miss_total"] = stats.miss_total;
  result["evicted_total"] = stats.evicted_total;
  result["expired_total"] = stats.expired_total;
  result["removed_total"] = stats.removed_total;
  result["damaged_total"] = stats.damaged_total;
  result["aborted_total"] = stats.aborted_total;
  return result;
}

nb::dict reserve(ObjectTable& table, const nb::bytes& key, std::uint64_t length, ConnectionId connection,
                 std::uint64_t now_ms, const nb::kwargs& options) {
  PutSpec spec;
  std::uint32_t arena_preferred = 0;
  for (const auto& [name, value] : options) set_option(spec, arena_preferred, nb::cast<std::string>(name), value);
  spec.key = view_of(key);
  spec.digest = digest_of(key, spec.tenant_id);
  spec.length = length;
  return dict_of(table.reserve(spec, connection, arena_preferred, now_ms));
}

nb::list take_events(ObjectTable& table) {
  std::vector<Event> events;
  table.take_events(events);
  return list_of(events);
}

nb::list take_residencies(ObjectTable& table) {
  std::vector<Residency> residencies;
  table.take_residencies(residencies);
  nb::list result;
  for (const Residency& residency : residencies) {
    nb::dict item;
    item["visible"] = residency.visible;
    item["expires"] = residency.expires;
    item["checksum"] = residency.checksum;
    item["tenant_id"] = residency.tenant_id;
    item["digest"] = bytes_of(residency.digest);
    item["generation"] = residency.generation;
    item["extent"] = dict_of(residency.extent);
    result.append(item);
  }
  return result;
}

nb::list take_freed(ObjectTable& table) {
  std::vector<Extent> freed;
  table.take_freed(freed);
  nb::list result;
  for (const Extent& extent : freed) result.append(dict_of(extent));
  return result;
}

nb::list snapshot(const ObjectTable& table) {
  std::vector<Event> events;
  std::uint64_t cursor = 0;
  do { cursor = table.snapshot(cursor, 1024, events); } while (cursor != 0);
  return list_of(events);
}

void bind_puts(nb::class_<ObjectTable>& table) {
  table
      .def(nb::new_([](const std::vector<std::uint64_t>& arena_bytes, const nb::dict& options) {
             TableLimits limits;
             for (const auto& [name, value] : options) set_limit(limits, nb::cast<std::string>(name), value);
             return ObjectTable(arena_bytes, limits);
           }),
           nb::arg("arena_bytes"), nb::arg("limits"))
      .def("reserve", &reserve, nb::arg("key"), nb::arg("length"), nb::arg("connection"), nb::arg("now_ms"),
           nb::arg("spec"))
      .def(
          "commit",
          [](ObjectTable& self, ConnectionId connection, Generation generation, std::uint32_t checksum,
             std::uint64_t now_ms) { return dict_of(self.commit(connection, generation, checksum, now_ms)); },
          nb::arg("connection"), nb::arg("generation"), nb::arg("checksum"), nb::arg("now_ms"))
      .def(
          "abort",
          [](ObjectTable& self, ConnectionId connection, Generation generation) {
            return dict_of(self.abort(connection, generation));
          },
          nb::arg("connection"), nb::arg("generation"))
      .def("quarantine_reservations_older_than", &ObjectTable::quarantine_reservations_older_than,
           nb::arg("reserved_before_ms"));
}

void bind_reads(nb::class_<ObjectTable>& table) {
  table
      .def(
          "hold",
          [](ObjectTable& self, const nb::bytes& key, ConnectionId connection, std::uint64_t deadline_ms,
             std::uint64_t now_ms, std::uint64_t tenant_id) {
            return dict_of(
                self.hold(digest_of(key, tenant_id), view_of(key), tenant_id, connection, deadline_ms, now_ms));
          },
          nb::arg("key"), nb::arg("connection"), nb::arg("deadline_ms"), nb::arg("now_ms"), nb::arg("tenant_id") = 0)
      .def(
          "release",
          [](ObjectTable& self, ConnectionId connection, Generation generation) {
            return dict_of(self.release(connection, generation));
          },
          nb::arg("connection"), nb::arg("generation"))
      .def("revoke_holds", &ObjectTable::revoke_holds, nb::arg("now_ms"))
      .def(
          "touch",
          [](ObjectTable& self, Generation generation, std::uint64_t tenant_id) {
            return dict_of(self.touch(generation, tenant_id));
          },
          nb::arg("generation"), nb::arg("tenant_id") = 0)
      .def(
          "held",
          [](const ObjectTable& self, ConnectionId connection, Generation generation) {
            return dict_of(self.held(connection, generation));
          },
          nb::arg("connection"), nb::arg("generation"))
      .def(
          "reserved",
          [](const ObjectTable& self, ConnectionId connection, Generation generation) {
            return dict_of(self.reserved(connection, generation));
          },
          nb::arg("connection"), nb::arg("generation"))
      .def(
          "peek",
          [](ObjectTable& self, const nb::bytes& key, std::uint64_t now_ms, std::uint64_t tenant_id) {
            return dict_of(self.peek(digest_of(key, tenant_id), view_of(key), tenant_id, now_ms));
          },
          nb::arg("key"), nb::arg("now_ms"), nb::arg("tenant_id") = 0)
      .def(
          "why",
          [](const ObjectTable& self, const nb::bytes& key, std::uint64_t tenant_id) {
            return static_cast<int>(self.why(digest_of(key, tenant_id)));
          },
          nb::arg("key"), nb::arg("tenant_id") = 0);
}

void bind_changes(nb::class_<ObjectTable>& table) {
  table
      .def(
          "remove",
          [](ObjectTable& self, const nb::bytes& key, std::uint64_t now_ms, std::uint64_t tenant_id, int reason) {
            return dict_of(
                self.remove(digest_of(key, tenant_id), view_of(key), tenant_id, static_cast<Reason>(reason), now_ms));
          },
          nb::arg("key"), nb::arg("now_ms"), nb::arg("tenant_id") = 0,
          nb::arg("reason") = static_cast<int>(Reason::removed))
      .def(
          "pin",
          [](ObjectTable& self, const nb::bytes& key, std::uint64_t now_ms, std::uint64_t tenant_id) {
            return dict_of(self.pin(digest_of(key, tenant_id), view_of(key), tenant_id, now_ms));
          },
          nb::arg("key"), nb::arg("now_ms"), nb::arg("tenant_id") = 0)
      .def(
          "unpin",
          [](ObjectTable& self, const nb::bytes& key, std::uint64_t tenant_id) {
            return dict_of(self.unpin(digest_of(key, tenant_id), view_of(key), tenant_id));
          },
          nb::arg("key"), nb::arg("tenant_id") = 0)
      .def("clear", &ObjectTable::clear, nb::arg("namespace_id"), nb::arg("now_ms"))
      .def("drop_connection", &ObjectTable::drop_connection, nb::arg("connection"))
      .def("quarantine_connection", &ObjectTable::quarantine_connection, nb::arg("connection"))
      .def("expire", &ObjectTable::expire, nb::arg("now_ms"), nb::arg("count_max"));
}

}  // namespace

void bind_object_table(nb::module_& module) {
  nb::class_<ObjectTable> table(module, "ObjectTable", nb::is_final());
  bind_puts(table);
  bind_reads(table);
  bind_changes(table);
  table.def("take_events", &take_events)
      .def("take_freed", &take_freed)
      .def("take_residencies", &take_residencies)
      .def("snapshot", &snapshot)
      .def("stats", [](const ObjectTable& self) { return dict_of(self.stats()); })
      .def("check_integrity", &ObjectTable::check_integrity);
}

}  // namespace moonpool
