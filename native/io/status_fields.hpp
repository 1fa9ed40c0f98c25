// Parts of /status documents that nodes and directories share.
#pragma once

#include "core/block_index.hpp"
#include "core/object_table.hpp"
#include "io/frame_server.hpp"
#include "io/json.hpp"

namespace moonpool {

[[nodiscard]] const char* name_of(Reason reason);
// Fields of an open object: incarnation, name, site, uptime_ms, process_id, path, wire_versions.
void write_identity(JsonWriter& json, const ServerIdentity& identity, std::uint64_t started_ms);
// Fields of an open object: who is at the other end, and what it said about itself.
void write_peer(JsonWriter& json, const Connection& connection, bool with_description);
void write_counters(JsonWriter& json, const CounterMap& counters);
void write_stats(JsonWriter& json, const TableStats& stats);
void write_stats(JsonWriter& json, const IndexStats& stats);
void add_stats(CounterMap& counters, const TableStats& stats);

}  // namespace moonpool
