// Where everything that ended is told: a descriptor that becomes readable, and the tickets of what ended.
#pragma once

#include <mutex>

#include "core/types.hpp"
#include "io/descriptor.hpp"

namespace moonpool {

// Any thread. A ticket is posted once for each thing that somebody waits for, so the queue is as long as that.
class CompletionQueue {
 public:
  CompletionQueue();  // throws std::system_error
  void post(std::uint64_t ticket) noexcept;
  // All that was posted, and the descriptor is quiet again.
  [[nodiscard]] std::vector<std::uint64_t> take();
  // Readable while there is something to take.
  [[nodiscard]] int descriptor() const { return ready_.number(); }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> tickets_;
  Descriptor ready_;
};

}  // namespace moonpool
