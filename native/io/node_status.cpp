// What a node says about itself.
#include <algorithm>
#include <array>

#include "io/clock.hpp"
#include "io/node_service.hpp"

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
                                     "protocol"};

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

constexpr std::array verb_names = {"",      "hello", "authenticate", "reserve", "commit",  "abort",  "put_inline",
                                   "write", "hold",  "release",      "read",    "exists",  "remove", "pin",
                                   "unpin", "clear", "why",          "list",    "match",   "locate", "describe",
                                   "stat",  "ping",  "arena",        "events",  "goodbye", "damaged"};

}  // namespace

const char* name_of(Reason reason) {
  const auto index = static_cast<std::size_t>(reason);
  return index < reason_names.size() ? reason_names[index] : "unknown";
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

CounterMap NodeService::counters() const {
  CounterMap all = server_.counters();
  const TableStats stats = table_.stats();
  for (const Figure& figure : table_figures) { all[figure.name] = stats.*figure.member; }
  for (std::size_t index = 1; index < reason_names.size(); ++index) {
    all[std::string("misses_") + reason_names[index]] = misses_[index];
    all[std::string("refused_") + reason_names[index]] = refusals_[index];
  }
  for (std::size_t index = 1; index < verb_names.size(); ++index) {
    all[std::string("requests_") + verb_names[index]] = requests_[index];
  }
  all["bytes_read_total"] = read_bytes_;
  all["bytes_stored_total"] = stored_bytes_;
  all["connection_count"] = server_.connections().size();
  all["departed_count"] = server_.departed_count();
  return all;
}

void NodeService::write_connections(JsonWriter& json, bool with_descriptions) const {
  const std::uint64_t now_ms = boot_ms();
  json.key("connections").begin_array();
  for (const auto& [id, connection] : server_.connections()) {
    if (connection->state != Connection::State::ready) { continue; }
    const ObjectTable::ConnectionStats own = table_.connection_stats(id);
    const Principal& principal = connection->principal;
    json.begin_object();
    json.field("connection", id)
        .field("name", std::string_view(principal.name))
        .field("tenant", std::string_view(principal.tenant));
    json.field("process_id", static_cast<std::uint64_t>(connection->peer.process_id));
    json.field("transport", principal.shared_memory ? "shared_memory" : "socket");
    json.field("held_bytes", own.held_bytes).field("hold_count", own.hold_count);
    json.field("reserved_bytes", own.reserved_bytes).field("reservation_count", own.reservation_count);
    json.field("quarantined_bytes", own.quarantined_bytes);
    json.field("silent_ms", now_ms - std::min(now_ms, connection->heard_ms));
    json.field("description", with_descriptions ? std::string_view(connection->description) : std::string_view());
    json.end_object();
  }
  json.end_array();
}

void NodeService::write_directories(JsonWriter& json) const {
  json.key("directories").begin_array();
  for (const auto& publisher : publishers_) {
    json.begin_object().field("path", std::string_view(publisher->path())).field("state", name_of(publisher->state()));
    json.field("acknowledged_sequence", publisher->acknowledged_sequence()).field("lag", publisher->lag());
    json.field("snapshot_count", publisher->snapshot_count()).end_object();
  }
  json.end_array();
}

std::string NodeService::status_document(bool with_descriptions) const {
  JsonWriter json;
  json.begin_object();
  json.field("incarnation", options_.identity.incarnation).field("name", std::string_view(options_.identity.name));
  json.field("site", std::string_view(options_.identity.site)).field("uptime_ms", boot_ms() - started_ms_);
  json.field("process_id", static_cast<std::uint64_t>(::getpid()))
      .field("path", std::string_view(options_.identity.path));
  json.field("state", memory_refused_ ? "memory_refused" : populated_ ? "ready" : "warming");
  const std::vector<std::uint64_t> arenas = segment_.arena_bytes();
  json.key("segment").begin_object().field("segment_bytes", options_.segment_bytes).field("arena_count", arenas.size());
  json.field("arena_bytes", arenas.empty() ? 0 : arenas.front()).end_object();
  json.key("table");
  write_stats(json, table_.stats());
  json.key("index");
  write_stats(json, index_.stats());
  write_connections(json, with_descriptions);
  write_directories(json);
  json.key("counters").begin_object();
  for (const auto& [name, value] : counters()) { json.field(name, value); }
  json.end_object().end_object();
  return json.take();
}

std::string NodeService::status(std::size_t byte_count_max) const {
  std::string document = status_document(true);
  return document.size() <= byte_count_max ? document : status_document(false);
}

std::string NodeService::check_integrity() const {
  std::string wrong = table_.check_integrity();
  return wrong.empty() ? index_.check_integrity() : wrong;
}

}  // namespace moonpool
