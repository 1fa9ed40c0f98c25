// What a node says about itself.
#include <algorithm>
#include <array>

#include "io/node_service.hpp"
#include "io/status_fields.hpp"

namespace moonpool {
namespace {

constexpr std::array verb_names = {"",      "hello", "authenticate", "reserve", "commit",  "abort",   "put_inline",
                                   "write", "hold",  "release",      "read",    "exists",  "remove",  "pin",
                                   "unpin", "clear", "why",          "list",    "match",   "locate",  "describe",
                                   "stat",  "ping",  "arena",        "events",  "goodbye", "damaged", "touched"};

const char* transport_of(const Connection& connection) {
  if (connection.principal.shared_memory) { return "shared_memory"; }
  return connection.remote ? "tcp" : "socket";
}

}  // namespace

CounterMap NodeService::counters() const {
  CounterMap all = server_.counters();
  add_stats(all, table_.stats());
  for (std::size_t index = 1; name_of(static_cast<Reason>(index)) != nullptr; ++index) {
    const std::string name = name_of(static_cast<Reason>(index));
    all["misses_" + name] = misses_[index];
    all["refused_" + name] = refusals_[index];
  }
  for (std::size_t index = 1; index < verb_names.size(); ++index) {
    all[std::string("requests_") + verb_names[index]] = requests_[index];
  }
  all.merge(rails_.counters());
  const Grants::Counts granted = grants_.counts();
  all["grants_given"] = granted.given;
  all["grants_leaving"] = granted.busy;
  all["grants_inside"] = granted.inside;
  all["grants_denied_total"] = granted.denied_total;
  all["rail_count"] = rails_.rail_count();
  all["bytes_read_total"] = read_bytes_;
  all["bytes_stored_total"] = stored_bytes_;
  all["catalogue_entry_count"] = catalogue_.entry_count();
  all["catalogue_unlisted_total"] = catalogue_.unlisted_count();
  all["connection_count"] = server_.connections().size();
  all["departed_count"] = server_.departed_count();
  return all;
}

void NodeService::write_connections(JsonWriter& json, bool with_descriptions) const {
  json.key("connections").begin_array();
  for (const auto& [id, connection] : server_.connections()) {
    if (connection->state != Connection::State::ready) { continue; }
    const ObjectTable::ConnectionStats own = table_.connection_stats(id);
    json.begin_object();
    write_peer(json, *connection, with_descriptions);
    json.field("transport", transport_of(*connection));
    json.field("held_bytes", own.held_bytes).field("hold_count", own.hold_count);
    json.field("reserved_bytes", own.reserved_bytes).field("reservation_count", own.reservation_count);
    json.field("quarantined_bytes", own.quarantined_bytes);
    const Traffic& traffic = connection->traffic;
    json.key("counters").begin_object().field("hit", traffic.hit).field("miss", traffic.miss);
    json.field("stored", traffic.stored).field("refused", traffic.refused);
    json.field("read_bytes", traffic.read_bytes).field("written_bytes", traffic.written_bytes).end_object();
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

void NodeService::write_segment(JsonWriter& json) const {
  const std::vector<std::uint64_t> arenas = segment_.arena_bytes();
  json.key("segment").begin_object().field("capacity_bytes", table_.stats().capacity_bytes);
  json.field("populated_bytes", populated_bytes_.load()).field("arena_count", arenas.size());
  json.field("arena_bytes", arenas.empty() ? std::uint64_t{0} : arenas.front()).end_object();
}

std::string NodeService::status_document(bool with_descriptions) const {
  JsonWriter json;
  json.begin_object();
  write_identity(json, options_.identity, started_ms_);
  json.field("address", std::string_view(serving_address_));
  json.field("state", memory_refused_ ? "memory_refused" : populated_ ? "ready" : "warming");
  write_segment(json);
  json.key("table");
  write_stats(json, table_.stats());
  json.key("index");
  write_stats(json, index_.stats());
  write_connections(json, with_descriptions);
  write_directories(json);
  write_counters(json, counters());
  json.end_object();
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
