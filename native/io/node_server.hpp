// A node's native side: its segment, its loop in a thread, and answers to other threads.
#pragma once

#include "io/loop_thread.hpp"
#include "io/node_service.hpp"

namespace moonpool {

// Any thread may call anything.
class NodeServer {
 public:
  explicit NodeServer(NodeOptions options);
  ~NodeServer();
  NodeServer(const NodeServer&) = delete;
  NodeServer& operator=(const NodeServer&) = delete;
  NodeServer(NodeServer&&) = delete;
  NodeServer& operator=(NodeServer&&) = delete;

  // Throws std::system_error (path taken, memory refused), std::logic_error when it was started before.
  void start();
  void stop();
  // Before start(): an empty document.
  [[nodiscard]] std::string status();
  [[nodiscard]] CounterMap counters();
  [[nodiscard]] std::string check_integrity();

 private:
  void populate();

  NodeOptions options_;
  std::mutex mutex_;  // of all that follows but the atomics
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> populated_bytes_{0};
  std::uint64_t fork_count_ = fork_count();
  LoopThread thread_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<NodeService> service_;
  std::thread populate_thread_;
};

}  // namespace moonpool
