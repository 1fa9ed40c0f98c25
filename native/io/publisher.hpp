// Tells one directory what the node holds: snapshot first, then events as they come. Lives in the node's loop.
#pragma once

#include <deque>

#include "io/event_loop.hpp"
#include "io/frame_server.hpp"
#include "io/peer_address.hpp"

namespace moonpool {

// Fills `into` with visible objects from cursor on and returns the next cursor, 0 at the end.
using SnapshotSource =
    std::function<std::uint64_t(std::uint64_t cursor, std::uint32_t count_max, std::vector<Event>& into)>;

class Publisher {
 public:
  enum class State : std::uint8_t { away, greeting, snapshot, live };
  // serving: where the node can be reached, for those who ask the directory.
  struct Route {
    std::string directory;
    std::string serving;
  };
  Publisher(EventLoop& loop, const ServerIdentity& identity, Route route, SnapshotSource source);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  Publisher(Publisher&&) = delete;
  Publisher& operator=(Publisher&&) = delete;

  void tick(std::uint64_t now_ms);
  void enqueue(std::span<const Event> events);
  // At most about 1 ms; true: there is more to do at once.
  bool work();
  void close();

  [[nodiscard]] const std::string& path() const { return route_.directory; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] std::uint64_t acknowledged_sequence() const { return acknowledged_; }
  [[nodiscard]] std::uint64_t lag() const { return sequence_ - acknowledged_ + waiting_.size(); }
  [[nodiscard]] std::uint64_t snapshot_count() const { return snapshot_count_; }

 private:
  void connect();
  [[nodiscard]] Descriptor begin_to_connect();
  void greet(Descriptor socket);
  void ready(std::uint32_t epoll_events);
  bool take(const Frame& frame);
  bool take_challenge(const Frame& frame);
  bool take_welcome(const Frame& frame);
  void begin_snapshot();
  void send_events(EventsPhase phase, std::vector<Event> events);
  [[nodiscard]] bool can_send() const;
  void say_that_it_lives(std::uint64_t now_ms);
  void flush();
  void disconnect();

  EventLoop& loop_;
  const ServerIdentity& identity_;
  Route route_;
  PeerAddress address_;
  std::size_t next_target_ = 0;  // of the addresses that the directory's name means
  SnapshotSource source_;
  State state_ = State::away;
  std::unique_ptr<FrameStream> stream_;
  std::uint32_t watched_events_ = 0;
  Nonce client_nonce_{};
  Nonce server_nonce_{};
  std::uint64_t retry_at_ms_ = 0;
  std::uint64_t retry_after_ms_ = 0;
  std::uint64_t greeting_since_ms_ = 0;
  std::uint64_t sent_at_ms_ = 0;    // the last message
  std::uint64_t sequence_ = 0;      // messages sent on this connection
  std::uint64_t acknowledged_ = 0;  // of them, applied by the directory
  std::uint64_t cursor_ = 0;
  std::uint64_t snapshot_count_ = 0;
  std::deque<Event> waiting_;       // live events not sent yet
  std::vector<std::unique_ptr<FrameStream>> closed_;
};

[[nodiscard]] const char* name_of(Publisher::State state);

}  // namespace moonpool
