// Calls something again and again from a thread of its own, until it is destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "io/descriptor.hpp"

namespace moonpool {

class Heartbeat {
 public:
  // beat must not throw. Throws std::system_error.
  Heartbeat(std::uint64_t interval_ms, std::function<void()> beat);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  Heartbeat(Heartbeat&&) = delete;
  Heartbeat& operator=(Heartbeat&&) = delete;

 private:
  void run();

  std::uint64_t interval_ms_;
  std::function<void()> beat_;
  Descriptor wake_;  // no condition variable: one that is waited for cannot be destroyed in a forked child
  std::atomic<bool> stopping_{false};
  std::uint64_t fork_count_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace moonpool
