#include "io/status_fields.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "io/clock.hpp"

namespace moonpool {
namespace {

constexpr std::array reason_names = {"none",
                                     "never_stored",
                                     "evicted",
                                     "expired",
                                     "removed",
                                     "damaged",
                                     "incomplete_bundle",
                                     "not_committed",
                                     "no_parent",
                                     "key_too_long",
                                     "value_too_large",
                                     "wrong_length",
                                     "connection_limit",
                                     "not_yours",
                                     "deadline",
                                     "unavailable",
                                     "timed_out",
                                     "digest_collision",
                                     "warming",
                                     "access_denied",
                                     "wrong_incarnation",
                                     "cleared",
                                     "engine_gave_up",
                                     "bad_request",
                                     "protocol",
                                     "unknown_region",
                                     "out_of_range",
                                     "read_only",
                                     "cancelled"};

struct Figure {
  const char* name;
  std::uint64_t TableStats::* member;
};

constexpr std::array table_figures = {
    Figure{"capacity_bytes", &TableStats::capacity_bytes},
    Figure{"used_bytes", &TableStats::used_bytes},
    Figure{"committed_bytes", &TableStats::committed_bytes},
    Figure{"reserved_bytes", &TableStats::reserved_bytes},
    Figure{"held_bytes", &TableStats::held_bytes},
    Figure{"pinned_bytes", &TableStats::pinned_bytes},
    Figure{"quarantined_bytes", &TableStats::quarantined_bytes},
    Figure{"object_count", &TableStats::object_count},
    Figure{"reservation_count", &TableStats::reservation_count},
    Figure{"hold_count", &TableStats::hold_count},
    Figure{"pin_count", &TableStats::pin_count},
    Figure{"quarantined_count", &TableStats::quarantined_count},
    Figure{"stored_total", &TableStats::stored_total},
    Figure{"present_total", &TableStats::present_total},
    Figure{"conflict_total", &TableStats::conflict_total},
    Figure{"no_room_total", &TableStats::no_room_total},
    Figure{"refused_total", &TableStats::refused_total},
    Figure{"hit_total", &TableStats::hit_total},
    Figure{"miss_total", &TableStats::miss_total},
    Figure{"evicted_total", &TableStats::evicted_total},
    Figure{"expired_total", &TableStats::expired_total},
    Figure{"removed_total", &TableStats::removed_total},
    Figure{"damaged_total", &TableStats::damaged_total},
    Figure{"aborted_total", &TableStats::aborted_total},
};

}  // namespace

const char* name_of(Reason reason) {
  const auto index = static_cast<std::size_t>(reason);
  return index < reason_names.size() ? reason_names[index] : nullptr;
}

void write_identity(JsonWriter& json, const ServerIdentity& identity, std::uint64_t started_ms) {
  json.field("incarnation", identity.incarnation).field("name", std::string_view(identity.name));
  json.field("site", std::string_view(identity.site)).field("uptime_ms", boot_ms() - started_ms);
  json.field("process_id", static_cast<std::uint64_t>(::getpid())).field("path", std::string_view(identity.path));
  json.field("version", std::string_view(identity.release));
  json.key("wire_versions")
      .begin_array()
      .value(std::uint32_t{wire_version_min})
      .value(std::uint32_t{wire_version_max})
      .end_array();
}

void write_peer(JsonWriter& json, const Connection& connection, bool with_description) {
  const std::uint64_t now_ms = boot_ms();
  const Principal& principal = connection.principal;
  json.field("connection", connection.id).field("name", std::string_view(principal.name));
  json.field("tenant", principal.role == Role::owner ? std::string_view() : std::string_view(principal.tenant));
  json.field("role", principal.role == Role::owner ? "owner" : "client").field("remote", connection.remote);
  json.field("process_id", static_cast<std::uint64_t>(connection.peer.process_id));
  json.field("silent_ms", now_ms - std::min(now_ms, connection.heard_ms));
  json.field("description", with_description ? std::string_view(connection.description) : std::string_view());
}

void write_counters(JsonWriter& json, const CounterMap& counters) {
  json.key("counters").begin_object();
  for (const auto& [name, value] : counters) { json.field(name, value); }
  json.end_object();
}

void write_stats(JsonWriter& json, const TableStats& stats) {
  json.begin_object();
  for (const Figure& figure : table_figures) { json.field(figure.name, stats.*figure.member); }
  json.end_object();
}

void write_stats(JsonWriter& json, const IndexStats& stats) {
  json.begin_object();
  json.field("holder_count", stats.holder_count)
      .field("object_count", stats.object_count)
      .field("block_count", stats.block_count);
  json.field("entry_count", stats.entry_count).field("bytes", stats.bytes).field("stored_total", stats.stored_total);
  json.field("removed_total", stats.removed_total).field("unknown_removed_total", stats.unknown_removed_total);
  json.field("refused_full_total", stats.refused_full_total);
  json.end_object();
}

void add_stats(CounterMap& counters, const TableStats& stats) {
  for (const Figure& figure : table_figures) { counters[figure.name] = stats.*figure.member; }
}

}  // namespace moonpool
