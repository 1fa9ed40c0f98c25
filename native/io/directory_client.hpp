// A client of one directory.
#pragma once

#include "io/node_client.hpp"

namespace moonpool {

struct Located {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string address;
};

class DirectoryClient {
 public:
  explicit DirectoryClient(PeerOptions options) : peer_(std::move(options)) {}
  [[nodiscard]] PeerClient& peer() { return peer_; }
  // Per key its holders; nullopt when the directory could not be asked. Throws std::invalid_argument for a key
  // that is empty or too long.
  [[nodiscard]] std::optional<std::vector<std::vector<Located>>> locate(std::span<const std::string_view> keys,
                                                                        Deadline deadline);

 private:
  PeerClient peer_;
};

}  // namespace moonpool
