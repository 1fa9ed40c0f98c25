// One accepted connection of a server, and what a server does with its connections.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "io/frame_stream.hpp"
#include "io/socket.hpp"

namespace moonpool {

// Who speaks on a connection, as the handshake showed.
struct Principal {
  Role role = Role::client;
  std::string tenant;            // of owners: the address at which they serve
  std::string name;
  std::string site;
  std::uint64_t tenant_id = 0;
  std::uint64_t incarnation = 0;  // owners: theirs
  bool shared_memory = false;     // may map the segment: same user, same trust domain, its exit can be seen
  bool home_tenant = false;       // the tenant whose trust domain the segment is
};

// What a connection did so far, as its node counts it.
struct Traffic {
  std::uint64_t hit = 0, miss = 0, stored = 0, refused = 0, read_bytes = 0, written_bytes = 0;
};

struct Connection {
  enum class State : std::uint8_t { greeting, proving, ready };
  Connection(ConnectionId number, Descriptor socket)
      : id(number), stream(std::move(socket), FrameStream::Descriptors::refused) {}

  ConnectionId id;
  FrameStream stream;
  PeerProcess peer;
  Principal principal;
  State state = State::greeting;
  std::uint8_t version = wire_version_max;
  Nonce client_nonce{};
  Nonce server_nonce{};
  std::string description;
  Traffic traffic;
  std::uint64_t opened_ms = 0;
  std::uint64_t heard_ms = 0;
  std::uint64_t partial_since_ms = 0;  // 0: no half frame waits
  std::uint32_t watched_events = 0;
  bool remote = false;  // by TCP: nothing is known of its process
  bool paused = false;  // its unsent replies are at the limit: nothing is read until it takes some
};

// A connection whose peer asked for a rail and proved that it knows the secret.
struct ProvenRail {
  ConnectionId id = 0;  // the peer knows it from the welcome
  Principal principal;
  Descriptor socket;
};

// A peer broke the protocol or may not go on: it is told and the connection is closed.
struct Refusal : std::exception {
  Refusal(Reason reason_given, const char* counter_given, std::string message_given)
      : reason(reason_given), counter(counter_given), message(std::move(message_given)) {}
  [[nodiscard]] const char* what() const noexcept override { return message.c_str(); }

  Reason reason;
  const char* counter;  // constant text
  std::string message;
};

class Service {
 public:
  Service() = default;
  virtual ~Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  Service(Service&&) = delete;
  Service& operator=(Service&&) = delete;

  // The peer proved that it knows the secret: completes connection.principal. Throws Refusal.
  virtual void admit(Connection& connection) = 0;
  virtual Welcome welcome(const Connection& connection) = 0;
  virtual void admitted(Connection& connection) = 0;
  // For services whose admit() lets rails in: the socket is theirs from now on.
  virtual void take_rail(ProvenRail /*rail*/) {}
  // Appends the reply to connection.stream.output(). Throws Refusal.
  virtual void serve(Connection& connection, const Frame& frame) = 0;
  // Closed without goodbye while the process lives. True: something of it is left, call gone() when the process is.
  virtual bool lost(Connection& connection) = 0;
  // Nothing of that connection can be in use any more.
  virtual void gone(ConnectionId connection) = 0;
};

}  // namespace moonpool
