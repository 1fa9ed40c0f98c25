// What a directory says about itself.
#include <unistd.h>

#include <algorithm>

#include "io/clock.hpp"
#include "io/directory_service.hpp"
#include "io/status_fields.hpp"

namespace moonpool {

CounterMap DirectoryService::counters() const {
  CounterMap all = server_.counters();
  const IndexStats stats = index_.stats();
  all["entry_count"] = stats.entry_count;
  all["object_count"] = stats.object_count;
  all["block_count"] = stats.block_count;
  all["index_bytes"] = stats.bytes;
  all["stored_total"] = stats.stored_total;
  all["removed_total"] = stats.removed_total;
  all["unknown_removed_total"] = stats.unknown_removed_total;
  all["refused_full_total"] = stats.refused_full_total;
  all["holder_count"] = holders_.size();
  all["connection_count"] = server_.connections().size();
  all["events_total"] = event_count_;
  all["requests_match"] = match_count_;
  all["requests_locate"] = locate_count_;
  return all;
}

void DirectoryService::write_holders(JsonWriter& json) const {
  const std::uint64_t now_ms = boot_ms();
  json.key("holders").begin_array();
  for (const auto& [connection, holder] : holders_) {
    json.begin_object().field("name", std::string_view(holder.name)).field("incarnation", holder.incarnation);
    json.field("site", std::string_view(holder.site)).field("address", std::string_view(holder.address));
    json.field("warming", !holder.told).field("sequence", holder.next_sequence).field("connection", connection);
    json.field("entry_count", index_.entry_count(holder.id));
    json.field("last_heard_ms", now_ms - std::min(now_ms, holder.last_heard_ms)).end_object();
  }
  json.end_array();
}

void DirectoryService::write_connections(JsonWriter& json, bool with_descriptions) const {
  json.key("connections").begin_array();
  for (const auto& [id, connection] : server_.connections()) {
    if (connection->state == Connection::State::ready) {
      json.begin_object();
      write_peer(json, *connection, with_descriptions);
      json.end_object();
    }
  }
  json.end_array();
}

std::string DirectoryService::status_document(bool with_descriptions) const {
  JsonWriter json;
  json.begin_object();
  write_identity(json, options_.identity, started_ms_);
  json.field("address", std::string_view(server_.serving_address()));
  json.field("state", warming() ? "warming" : "ready");
  json.key("index");
  write_stats(json, index_.stats());
  write_holders(json);
  write_connections(json, with_descriptions);
  write_counters(json, counters());
  json.end_object();
  return json.take();
}

std::string DirectoryService::status(std::size_t byte_count_max) const {
  std::string document = status_document(true);
  return document.size() <= byte_count_max ? document : status_document(false);
}

}  // namespace moonpool
