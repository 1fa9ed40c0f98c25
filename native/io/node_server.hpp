// A node's native side: its segment, and its service in a thread of its own.
#pragma once

#include "io/node_service.hpp"
#include "io/server_shell.hpp"

namespace moonpool {

class NodeServer : public ServerShell<NodeService> {
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

 private:
  void populate();

  NodeOptions options_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> populated_bytes_{0};
  std::unique_ptr<Segment> segment_;
  std::thread populate_thread_;
};

}  // namespace moonpool
