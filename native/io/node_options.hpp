// What a node is started with.
#pragma once

#include "core/object_table.hpp"
#include "io/frame_server.hpp"
#include "io/rail_server.hpp"

namespace moonpool {

struct NodeLimits {
  TableLimits table;
  ServerLimits server;
  RailLimits rails;
  std::uint64_t reservation_ms = 30'000;
  std::uint64_t copy_hold_ms = 10'000;
  std::uint32_t small_put_bytes = 4'096;
};

struct NodeOptions {
  ServerIdentity identity;
  std::uint64_t segment_bytes = 0;
  std::uint64_t arena_bytes = 0;
  std::vector<std::string> tenants;  // who may connect, the home tenant first; empty: anybody, "default" is at home
  std::vector<std::string> directories;  // socket paths
  NodeLimits limits;
};

// Sets the limit of that name. Throws std::invalid_argument for a name that is none.
void set_limit(NodeLimits& limits, std::string_view name, std::uint64_t value);
// The limits that every server has; false when the name is none of them.
bool set_limit(ServerLimits& limits, std::string_view name, std::uint64_t value);

}  // namespace moonpool
