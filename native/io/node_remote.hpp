// How a client moves values between its memory and another host's node: over rails, whole batches at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "io/rail_client.hpp"
#include "io/session.hpp"

namespace moonpool {

// A value in the caller's memory, and the grant of its place on the node.
struct RemoteValue {
  Digest token;
  std::span<const Piece> pieces;  // in order, together as long as the place
};
struct RemoteMoved {
  Reason reason = Reason::none;
  std::uint32_t checksum = 0;  // of the value, computed while its bytes were hot; where reason is none
};

// The rails to one node, made when they are first needed. Any thread; a forked child gets some of its own.
class NodeRails {
 public:
  // rail_count 0: there are none, and values go through the connection of the messages.
  NodeRails(const PeerOptions& peer, std::uint32_t rail_count);
  ~NodeRails();
  NodeRails(const NodeRails&) = delete;
  NodeRails& operator=(const NodeRails&) = delete;
  NodeRails(NodeRails&&) = delete;
  NodeRails& operator=(NodeRails&&) = delete;

  [[nodiscard]] bool possible() const { return !options_.routes.empty(); }
  // One is up, or will be before the deadline.
  [[nodiscard]] bool ready(Deadline deadline);
  // One result for each value. Every byte that could be moved is, and nothing touches the memory afterwards.
  [[nodiscard]] std::vector<RemoteMoved> read(std::span<const RemoteValue> values, Deadline deadline);
  [[nodiscard]] std::vector<RemoteMoved> write(std::span<const RemoteValue> values, Deadline deadline);
  // Empty before they were needed.
  [[nodiscard]] std::vector<RailStatus> status();
  void close();

 private:
  struct State {
    std::mutex mutex;
    std::shared_ptr<RailClient> client;
    std::uint64_t fork_count = 0;
    bool closed = false;
  };
  [[nodiscard]] State& state();
  [[nodiscard]] std::shared_ptr<RailClient> client();
  [[nodiscard]] std::vector<RemoteMoved> move(std::span<const RemoteValue> values, bool write, Deadline deadline);

  RailOptions options_;
  std::atomic<State*> state_;
  std::unique_ptr<State> first_;
};

}  // namespace moonpool
