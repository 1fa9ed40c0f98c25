#include "io/node_options.hpp"

#include <algorithm>
#include <stdexcept>

namespace moonpool {
namespace {

std::uint32_t narrow(std::string_view name, std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("limit '" + std::string(name) + "' is too large");
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace

bool set_limit(ServerLimits& limits, std::string_view name, std::uint64_t value) {
  if (name == "connection_count") {
    limits.connection_count = narrow(name, value);
  } else if (name == "handshake_ms") {
    limits.handshake_ms = value;
  } else if (name == "frame_ms") {
    limits.frame_ms = value;
  } else if (name == "remote_silent_ms") {
    limits.remote_silent_ms = value;
  } else if (name == "unsent_bytes") {
    limits.unsent_bytes = value;
  } else {
    return false;
  }
  return true;
}

void set_limit(NodeLimits& limits, std::string_view name, std::uint64_t value) {
  if (set_limit(limits.server, name, value)) { return; }
  if (name == "held_bytes_per_connection") {
    limits.table.held_bytes_per_connection_max = value;
  } else if (name == "reserved_bytes_per_connection") {
    limits.table.reserved_bytes_per_connection_max = value;
  } else if (name == "pinned_bytes") {
    limits.table.pinned_bytes_max = value;
  } else if (name == "object_count") {
    limits.table.object_count_max = value;
  } else if (name == "holds_per_connection") {
    limits.table.holds_per_connection_max = narrow(name, value);
  } else if (name == "reservations_per_connection") {
    limits.table.reservations_per_connection_max = narrow(name, value);
  } else if (name == "why_count") {
    limits.table.why_count_max = narrow(name, value);
  } else if (name == "rail_count") {
    limits.rails.rail_count = narrow(name, value);
  } else if (name == "rail_thread_count") {
    limits.rails.thread_count = narrow(name, value);
  } else if (name == "rail_silent_ms") {
    limits.rails.silence_ms = value;
  } else if (name == "reservation_ms") {
    limits.reservation_ms = value;
  } else if (name == "copy_hold_ms") {
    limits.copy_hold_ms = value;
  } else if (name == "small_put_bytes") {
    limits.small_put_bytes = std::min(narrow(name, value), frame_payload_bytes_max / 2);
  } else {
    throw std::invalid_argument("unknown limit '" + std::string(name) + "'");
  }
}

}  // namespace moonpool
