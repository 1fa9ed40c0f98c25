// A way to move bytes between this process and one peer without a rail.
#pragma once

#include "io/rail_client.hpp"

namespace moonpool {

// Of one peer. Any thread, several at a time.
class PeerTransport {
 public:
  PeerTransport() = default;
  virtual ~PeerTransport() = default;
  PeerTransport(const PeerTransport&) = delete;
  PeerTransport& operator=(const PeerTransport&) = delete;
  PeerTransport(PeerTransport&&) = delete;
  PeerTransport& operator=(PeerTransport&&) = delete;

  [[nodiscard]] virtual const char* name() const = 0;  // constant text, as in status
  // Moves the bytes in the calling thread, or refuses as the peer would. nullopt: it does not reach that region,
  // nothing was touched, and the next transport is asked.
  [[nodiscard]] virtual std::optional<RailOutcome> move(const RailOperation& operation, Deadline deadline) = 0;
};

}  // namespace moonpool
