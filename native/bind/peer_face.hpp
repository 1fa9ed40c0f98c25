// What the Python faces of NodeClient and DirectoryClient share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind/numbers.hpp"
#include "bind/outcomes.hpp"
#include "io/handshake.hpp"
#include "io/peer_client.hpp"

namespace moonpool {

[[nodiscard]] inline std::string_view text_of(const nanobind::bytes& bytes) {
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

struct PeerArguments {
  std::string path;
  nanobind::bytes secret;
  std::string tenant;
  std::string name;
  std::uint64_t connect_timeout_ms = 0;
};
[[nodiscard]] PeerOptions peer_options(const PeerArguments& arguments);
// Throws ValueError for what is no "host:port".
[[nodiscard]] std::vector<TcpAddress> listen_addresses(const std::vector<std::string>& texts);
[[nodiscard]] nanobind::tuple connect_face(PeerClient& peer, std::uint64_t timeout_ms);
[[nodiscard]] nanobind::dict info_face(PeerClient& peer, const char* transport);
// Throws ValueError for a wrong namespace or group.
[[nodiscard]] Match match_question(std::uint64_t namespace_id, nanobind::handle block_hashes, nanobind::handle groups);
[[nodiscard]] MatchOutcome match_face(PeerClient& peer, const Match& question, std::uint64_t timeout_ms);
[[nodiscard]] nanobind::object stat_face(PeerClient& peer, std::uint64_t timeout_ms);
[[nodiscard]] bool ping_face(PeerClient& peer, std::uint64_t timeout_ms);

}  // namespace moonpool
