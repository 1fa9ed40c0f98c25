#include "io/frame_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "io/clock.hpp"
#include "io/handshake.hpp"
#include "io/peer_address.hpp"
#include "io/serve.hpp"

namespace moonpool {
namespace {

constexpr int listen_backlog = 128;
constexpr int accepts_per_event_max = 32;
constexpr std::uint64_t shrink_after_ms = 1'000;
constexpr std::uint64_t absence_ms_min = 1'000;  // between two ticks
constexpr std::uint32_t greeting_bytes_max = 4'096;  // nobody unknown makes us keep more

Refusal malformed_header(FrameError error) {
  switch (error) {
    case FrameError::too_large: return {Reason::bad_request, "malformed_oversize", "a frame is larger than allowed"};
    case FrameError::bad_version: return {Reason::protocol, "malformed_version", "a frame has an unknown version"};
    default: return {Reason::protocol, "malformed_header", "this is no frame"};
  }
}

bool is(const Frame& frame, MessageType type) { return frame.header.type == static_cast<std::uint16_t>(type); }

}  // namespace

FrameServer::FrameServer(EventLoop& loop, const ServerIdentity& identity, const ServerLimits& limits, Service& service)
    : loop_(loop), identity_(identity), limits_(limits), service_(service) {}

FrameServer::~FrameServer() = default;

void FrameServer::listen() {
  if (!identity_.path.empty()) { listeners_.push_back(listen_at(identity_.path, listen_backlog)); }
  for (const TcpAddress& address : identity_.addresses) {
    listeners_.push_back(listen_tcp(address, listen_backlog));
    bound_.push_back(bound_address(listeners_.back()));
  }
  for (std::size_t index = 0; index < listeners_.size(); ++index) {
    const bool remote = index > 0 || identity_.path.empty();
    loop_.watch(listeners_[index].number(), EPOLLIN,
                [this, index, remote](std::uint32_t) { accept_all(listeners_[index], remote); });
  }
  accepting_ = true;
}

std::string FrameServer::serving_address() const {
  if (bound_.empty()) { return text_of(PeerAddress{identity_.path, {}}); }
  if (identity_.advertised.empty()) { return bound_.front(); }
  if (const std::optional<TcpAddress> whole = parse_tcp_address(identity_.advertised)) { return text_of(*whole); }
  return text_of(TcpAddress{identity_.advertised, parse_tcp_address(bound_.front()).value_or(TcpAddress{}).port});
}

void FrameServer::watch_listeners(std::uint32_t epoll_events) {
  for (const Descriptor& listener : listeners_) { loop_.change(listener.number(), epoll_events); }
  accepting_ = epoll_events != 0;
}

void FrameServer::accept_all(const Descriptor& listener, bool remote) {
  for (int round = 0; round < accepts_per_event_max; ++round) {
    Descriptor socket = accept_from(listener);
    if (socket.open()) {
      try {
        adopt(std::move(socket), remote);
      } catch (const std::exception&) {  // no descriptor or memory left for it: the others go on
        count("refused_descriptors");
      }
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      watch_listeners(0);  // the tick tries again: no spinning on what cannot be accepted
      count("refused_descriptors");
    }
    return;
  }
}

void FrameServer::adopt(Descriptor socket, bool remote) {
  if (remote) { prepare_stream(socket); }
  auto connection = std::make_unique<Connection>(++last_id_, std::move(socket));
  connection->remote = remote;
  count("accepted");
  if (connections_.size() + departed_.size() >= limits_.connection_count) {
    count("refused_connection_count");
    ErrorReply answer;
    answer.reason = Reason::connection_limit;
    answer.message = "too many connections";
    append_frame(connection->stream.output(), {0, static_cast<std::uint16_t>(MessageType::error), wire_version_min},
                 answer);
    (void)connection->stream.flush();
    return;
  }
  connection->peer = peer_of(connection->stream.socket());
  connection->opened_ms = connection->heard_ms = boot_ms();
  const ConnectionId id = connection->id;
  connection->watched_events = EPOLLIN;
  loop_.watch(connection->stream.socket().number(), EPOLLIN, [this, id](std::uint32_t events) { ready(id, events); });
  if (connection->peer.process.open()) {
    loop_.watch(connection->peer.process.number(), EPOLLIN, [this, id](std::uint32_t) { process_exited(id); });
  }
  connections_.emplace(id, std::move(connection));
}

void FrameServer::ready(ConnectionId id, std::uint32_t epoll_events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) { return; }
  Connection& connection = *found->second;
  bool ended = false;
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !connection.paused) { ended = !receive(connection); }
  pump(connection);
  // pump() may have closed it; what is closed stays readable until closed_ is emptied.
  if (connections_.contains(id) && (ended || (epoll_events & EPOLLERR) != 0)) {
    drop(connection, has_exited(connection.peer) ? Ending::exited : Ending::lost);
  }
  closed_.clear();
}

// False: nothing more comes, or there is no memory for it.
bool FrameServer::receive(Connection& connection) {
  connection.heard_ms = boot_ms();
  try {
    return connection.stream.receive() != FrameStream::Received::ended;
  } catch (const std::bad_alloc&) {  // one connection's large message must not end the process for all
    count("refused_memory");
    return false;
  }
}

// Serves what was received, as long as the peer takes its replies.
void FrameServer::pump(Connection& connection) {
  const ConnectionId id = connection.id;
  bool more = true;
  while (more) {
    more = serve_received(connection);
    if (!connections_.contains(id)) { return; }
    if (!connection.stream.flush()) {
      drop(connection, has_exited(connection.peer) ? Ending::exited : Ending::lost);
      return;
    }
    connection.paused = connection.stream.unsent_bytes() >= limits_.unsent_bytes;
    more = more && !connection.paused;
  }
  if (!connection.stream.has_partial_frame() || connection.paused) {
    connection.partial_since_ms = 0;
  } else if (connection.partial_since_ms == 0) {
    connection.partial_since_ms = connection.heard_ms;
  }
  rewatch(connection);
}

// True: it stopped because too much is unsent, and there may be more to serve.
bool FrameServer::serve_received(Connection& connection) {
  const ConnectionId id = connection.id;
  std::uint32_t request_id = 0;
  try {
    while (connections_.contains(id) && connection.stream.unsent_bytes() < limits_.unsent_bytes) {
      Frame frame;
      const std::uint32_t payload_max =
          connection.state == Connection::State::ready ? frame_payload_bytes_max : greeting_bytes_max;
      const FrameStream::Next next = connection.stream.next(frame, payload_max);
      if (next == FrameStream::Next::malformed) { throw malformed_header(connection.stream.error()); }
      if (next == FrameStream::Next::incomplete) { return false; }
      connection.partial_since_ms = 0;
      request_id = frame.header.request_id;
      serve(connection, frame);
    }
  } catch (const Refusal& refusal) {
    refuse(connection, refusal, request_id);
  } catch (const std::exception& error) {  // one connection's request must never end the node
    refuse(connection, {Reason::unavailable, "internal_errors", error.what()}, request_id);
  }
  return true;
}

void FrameServer::rewatch(Connection& connection) {
  const std::uint32_t events = (connection.paused ? 0U : static_cast<std::uint32_t>(EPOLLIN)) |
                               (connection.stream.unsent_bytes() > 0 ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (events != connection.watched_events) {
    loop_.change(connection.stream.socket().number(), events);
    connection.watched_events = events;
  }
}

void FrameServer::serve(Connection& connection, const Frame& frame) {
  if (connection.state == Connection::State::greeting) {
    greet(connection, frame);
  } else if (connection.state == Connection::State::proving) {
    prove(connection, frame);
  } else if (is(frame, MessageType::goodbye)) {
    drop(connection, Ending::goodbye);
  } else {
    service_.serve(connection, frame);
  }
}

void FrameServer::greet(Connection& connection, const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<Hello> hello = is(frame, MessageType::hello) ? Hello::decode(reader) : std::nullopt;
  if (!hello || hello->magic != hello_magic || hello->name.size() > label_bytes_max ||
      hello->tenant.size() > label_bytes_max || hello->site.size() > label_bytes_max) {
    throw Refusal{Reason::protocol, "refused_greeting", "a connection begins with hello"};
  }
  const std::optional<std::uint8_t> version = negotiate(hello->version_min, hello->version_max);
  if (!version) {
    throw Refusal{Reason::protocol, "refused_version",
                  "no common version: this side speaks " + std::to_string(wire_version_min) + " to " +
                      std::to_string(wire_version_max) + ", the peer " + std::to_string(hello->version_min) + " to " +
                      std::to_string(hello->version_max)};
  }
  connection.version = *version;
  connection.client_nonce = hello->nonce;
  connection.server_nonce = random_nonce();
  Principal& principal = connection.principal;
  principal.role = hello->role;
  principal.tenant = hello->tenant;
  principal.name = hello->name;
  principal.site = hello->site;
  principal.incarnation = hello->incarnation;
  connection.state = Connection::State::proving;
  Challenge challenge;
  challenge.version = *version;
  challenge.incarnation = identity_.incarnation;
  challenge.nonce = connection.server_nonce;
  reply(connection, frame, challenge);
}

void FrameServer::prove(Connection& connection, const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<Authenticate> proof =
      is(frame, MessageType::authenticate) ? Authenticate::decode(reader) : std::nullopt;
  if (!proof) { throw Refusal{Reason::protocol, "refused_greeting", "after hello comes the proof"}; }
  const ProofInput input{identity_.secret, connection.server_nonce, connection.client_nonce};
  Principal& principal = connection.principal;
  if (!equal_proofs(proof->proof, client_proof(input, principal.tenant, principal.name))) {
    throw Refusal{Reason::access_denied, "refused_secret", "the peer does not know the secret of this pool"};
  }
  principal.tenant_id = tenant_id_of(identity_.secret, principal.tenant);
  service_.admit(connection);
  Welcome welcome = service_.welcome(connection);
  welcome.proof = server_proof(input);
  welcome.incarnation = identity_.incarnation;
  welcome.tenant_id = principal.tenant_id;
  welcome.connection = connection.id;
  welcome.node_name = identity_.name;
  welcome.site = identity_.site;
  const std::string address = serving_address();
  welcome.address = address;
  reply(connection, frame, welcome);
  count("welcomed");
  if (principal.role == Role::rail) {
    hand_over(connection);
    return;
  }
  connection.state = Connection::State::ready;
  service_.admitted(connection);
}

// What follows on a rail are no frames: its socket leaves this loop. The peer speaks again only after the welcome.
void FrameServer::hand_over(Connection& connection) {
  if (!connection.stream.flush() || connection.stream.unsent_bytes() > 0 || connection.stream.has_partial_frame()) {
    throw Refusal{Reason::protocol, "refused_greeting", "a rail waits for its welcome"};
  }
  const auto found = connections_.find(connection.id);
  loop_.forget(connection.stream.socket().number());
  if (connection.peer.process.open()) { loop_.forget(connection.peer.process.number()); }
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
  count("rails");
  service_.take_rail({connection.id, std::move(connection.principal), connection.stream.release_socket()});
}

void FrameServer::refuse(Connection& connection, const Refusal& refusal, std::uint32_t request_id) {
  count(refusal.counter);
  ErrorReply answer;
  answer.reason = refusal.reason;
  answer.message = refusal.message;
  // Always a frame of the first version: whatever the peer speaks, it can read why.
  append_frame(connection.stream.output(),
               {0, static_cast<std::uint16_t>(MessageType::error), wire_version_min, 0, request_id}, answer);
  (void)connection.stream.flush();
  drop(connection, has_exited(connection.peer) ? Ending::exited : Ending::lost);
}

void FrameServer::close(ConnectionId id, const Refusal& refusal) {
  if (const auto found = connections_.find(id); found != connections_.end()) { refuse(*found->second, refusal, 0); }
}

void FrameServer::process_exited(ConnectionId id) {
  if (const auto found = connections_.find(id); found != connections_.end()) {
    drop(*found->second, Ending::exited);
    closed_.clear();
    return;
  }
  if (const auto found = departed_.find(id); found != departed_.end()) {
    loop_.forget(found->second.process.number());
    departed_.erase(found);
    service_.gone(id);
  }
}

void FrameServer::drop(Connection& connection, Ending ending) {
  const auto found = connections_.find(connection.id);
  if (found == connections_.end()) { return; }
  loop_.forget(connection.stream.socket().number());
  const bool was_ready = connection.state == Connection::State::ready;
  const bool watch_on =
      was_ready && ending == Ending::lost && service_.lost(connection) && connection.peer.process.open();
  if (!watch_on) {
    if (connection.peer.process.open()) { loop_.forget(connection.peer.process.number()); }
    if (was_ready) { service_.gone(connection.id); }
  } else {
    departed_.emplace(connection.id, std::move(connection.peer));
  }
  count(ending == Ending::goodbye ? "closed_goodbye" : ending == Ending::exited ? "closed_exited" : "closed_lost");
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
}

// While this process was stopped, or the machine, nobody's heartbeat could be heard.
void FrameServer::forgive_own_absence(std::uint64_t now_ms) {
  if (last_tick_ms_ != 0 && now_ms > last_tick_ms_ + absence_ms_min) {
    for (const auto& [id, connection] : connections_) { connection->heard_ms = now_ms; }
  }
  last_tick_ms_ = now_ms;
}

void FrameServer::tick(std::uint64_t now_ms) {
  forgive_own_absence(now_ms);
  if (!accepting_) { watch_listeners(EPOLLIN); }
  std::vector<std::pair<ConnectionId, Refusal>> late;
  for (const auto& [id, connection] : connections_) {
    if (connection->state != Connection::State::ready && now_ms > connection->opened_ms + limits_.handshake_ms) {
      late.emplace_back(id, Refusal{Reason::timed_out, "refused_handshake_late", "no handshake in time"});
    } else if (connection->partial_since_ms != 0 && now_ms > connection->partial_since_ms + limits_.frame_ms) {
      late.emplace_back(id, Refusal{Reason::timed_out, "malformed_half_frame", "half a frame, and then nothing"});
    } else if (connection->remote && now_ms > connection->heard_ms + limits_.remote_silent_ms) {
      late.emplace_back(id, Refusal{Reason::timed_out, "dropped_silent", "no heartbeat for too long"});
    }
  }
  for (const auto& [id, refusal] : late) { close(id, refusal); }
  for (const auto& [id, connection] : connections_) {
    if (now_ms > connection->heard_ms + shrink_after_ms) { connection->stream.shrink(); }
  }
  closed_.clear();
}

void FrameServer::close_all() {
  const bool listened = !listeners_.empty();
  for (const Descriptor& listener : listeners_) { loop_.forget(listener.number()); }
  listeners_.clear();
  if (listened && !identity_.path.empty()) { ::unlink(identity_.path.c_str()); }
  while (!connections_.empty()) { drop(*connections_.begin()->second, Ending::goodbye); }
  closed_.clear();
}

}  // namespace moonpool
