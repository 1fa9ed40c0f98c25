// Accepts connections, lets them prove who they are, cuts their bytes into frames, and closes those that
// misbehave with a counted reason.
#pragma once

#include <map>
#include <unordered_map>

#include "core/siphash.hpp"
#include "io/connection.hpp"
#include "io/event_loop.hpp"
#include "io/tcp_socket.hpp"

namespace moonpool {

struct ServerIdentity {
  std::string path;                   // of the unix socket; empty: none
  std::vector<TcpAddress> addresses;  // to listen at besides; port 0 takes any free one
  std::string name;
  std::string site;
  SipKey secret{};
  std::uint64_t incarnation = 0;
  std::string release;  // of the package, for people
  std::string advertised;  // host, or host and port, at which others reach it; empty: the first of addresses
};

struct ServerLimits {
  std::uint32_t connection_count = 1'024;
  std::uint64_t handshake_ms = 2'000;
  std::uint64_t frame_ms = 2'000;
  std::uint64_t remote_silent_ms = 5'000;  // a remote peer that says nothing for so long is taken for gone
  std::size_t unsent_bytes = 8U << 20U;
};

using CounterMap = std::map<std::string, std::uint64_t>;

class FrameServer {
 public:
  FrameServer(EventLoop& loop, const ServerIdentity& identity, const ServerLimits& limits, Service& service);
  ~FrameServer();
  FrameServer(const FrameServer&) = delete;
  FrameServer& operator=(const FrameServer&) = delete;
  FrameServer(FrameServer&&) = delete;
  FrameServer& operator=(FrameServer&&) = delete;

  void listen();  // throws std::system_error
  // Where it listens by TCP, in the order of the identity's addresses.
  [[nodiscard]] const std::vector<std::string>& bound() const { return bound_; }
  // What it tells others: where to connect to. By TCP where it listens so.
  [[nodiscard]] std::string serving_address() const;
  // Closes what is late: handshakes and half frames.
  void tick(std::uint64_t now_ms);
  void close_all();
  // Closes another connection than the one that is being served.
  void close(ConnectionId id, const Refusal& refusal);
  [[nodiscard]] const std::unordered_map<ConnectionId, std::unique_ptr<Connection>>& connections() const {
    return connections_;
  }
  [[nodiscard]] std::size_t departed_count() const { return departed_.size(); }
  void count(const char* counter, std::uint64_t by = 1) { counters_[counter] += by; }
  [[nodiscard]] const CounterMap& counters() const { return counters_; }

 private:
  void accept_all(const Descriptor& listener, bool remote);
  void watch_listeners(std::uint32_t epoll_events);
  void adopt(Descriptor socket, bool remote);
  void ready(ConnectionId id, std::uint32_t epoll_events);
  [[nodiscard]] bool receive(Connection& connection);
  void pump(Connection& connection);
  bool serve_received(Connection& connection);
  void serve(Connection& connection, const Frame& frame);
  void greet(Connection& connection, const Frame& frame);
  void prove(Connection& connection, const Frame& frame);
  void hand_over(Connection& connection);
  void process_exited(ConnectionId id);
  void refuse(Connection& connection, const Refusal& refusal, std::uint32_t request_id);
  enum class Ending : std::uint8_t { goodbye, exited, lost };
  void drop(Connection& connection, Ending ending);
  void rewatch(Connection& connection);
  void forgive_own_absence(std::uint64_t now_ms);

  EventLoop& loop_;
  const ServerIdentity& identity_;
  ServerLimits limits_;
  Service& service_;
  std::vector<Descriptor> listeners_;
  std::vector<std::string> bound_;
  bool accepting_ = false;
  std::uint64_t last_tick_ms_ = 0;
  ConnectionId last_id_ = 0;
  std::unordered_map<ConnectionId, std::unique_ptr<Connection>> connections_;
  std::unordered_map<ConnectionId, PeerProcess> departed_;  // lost, and their processes may still write
  std::vector<std::unique_ptr<Connection>> closed_;         // kept until the event that closed them is over
  CounterMap counters_;
};

}  // namespace moonpool
