// How a rail begins: it connects and proves itself, and never waits.
#include <poll.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "io/rail_link.hpp"

namespace moonpool {
namespace {

constexpr std::uint32_t greeting_bytes_max = 4'096;

TcpAddress parsed(const std::string& text) {
  const std::optional<TcpAddress> address = parse_tcp_address(text);
  if (!address || address->port == 0) { throw std::invalid_argument("'" + text + "' is no host:port"); }
  return *address;
}

bool writable_now(const Descriptor& socket) {
  pollfd state{socket.number(), POLLOUT, 0};
  return ::poll(&state, 1, 0) == 1;
}

bool is_reply(const Frame& frame, MessageType request) {
  return frame.header.type ==
         (static_cast<std::uint16_t>(request) | static_cast<std::uint16_t>(MessageType::reply_bit));
}

}  // namespace

RailLink::RailLink(const RailOptions& options, const RailRoute& route, std::uint64_t group)
    : options_(options), route_(route), address_(parsed(route.peer)), group_(group) {}

void RailLink::connect(std::uint64_t now_us) {
  opening_until_us_ = now_us + options_.connect_timeout_ms * 1'000;
  next_target_ = 0;
  targets_ = resolve_tcp(address_);
  if (!open_socket()) {
    failed(Reason::unavailable, std::generic_category().message(targets_.empty() ? EADDRNOTAVAIL : errno));
  }
}

// Begins with the next of the addresses that the name has. False: none is left.
bool RailLink::open_socket() {
  while (next_target_ < targets_.size()) {
    socket_ = begin_connect(targets_[next_target_++], route_.local);
    if (socket_.open()) {
      state_.store(State::connecting, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

void RailLink::advance_opening(std::uint64_t now_us) {
  if (now_us >= opening_until_us_) {
    failed(Reason::timed_out, "no welcome in time");
    return;
  }
  if (state() == State::connecting) {
    if (!writable_now(socket_)) { return; }
    if (const int error = connect_error(socket_); error != 0) {
      if (!open_socket()) { failed(Reason::unavailable, std::generic_category().message(error)); }
      return;
    }
    proof_ = {options_.secret, {}, random_nonce()};
    Hello hello;
    hello.role = Role::rail;
    hello.process_id = static_cast<std::uint32_t>(::getpid());
    hello.incarnation = group_;
    hello.nonce = proof_.client_nonce;
    hello.tenant = options_.tenant;
    hello.name = options_.name;
    stream_ = std::make_unique<FrameStream>(std::move(socket_), FrameStream::Descriptors::refused);
    append_frame(stream_->output(), {0, static_cast<std::uint16_t>(MessageType::hello), wire_version_min}, hello);
    state_.store(State::greeting, std::memory_order_relaxed);
  }
  Frame frame;
  const bool ended = !stream_->flush() || stream_->receive() == FrameStream::Received::ended;
  while (!up() && stream_ && stream_->next(frame, greeting_bytes_max) == FrameStream::Next::frame) {
    take_frame(frame, now_us);
  }
  if (stream_ && (ended || !stream_->flush())) {
    failed(Reason::unavailable, "the peer closed the connection before its welcome");
  }
}

void RailLink::take_frame(const Frame& frame, std::uint64_t now_us) {
  if (frame.header.type == static_cast<std::uint16_t>(MessageType::error)) {
    refused(frame);
  } else if (state() == State::greeting && is_reply(frame, MessageType::hello)) {
    take_challenge(frame);
  } else if (state() == State::proving && is_reply(frame, MessageType::authenticate)) {
    take_welcome(frame, now_us);
  } else {
    failed(Reason::protocol, "the peer's greeting is malformed");
  }
}

void RailLink::take_challenge(const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<Challenge> challenge = Challenge::decode(reader);
  if (!challenge || challenge->version < wire_version_min || challenge->version > wire_version_max) {
    failed(Reason::protocol, "the peer's challenge is malformed or of an unknown version");
    return;
  }
  proof_.server_nonce = challenge->nonce;
  Authenticate proof;
  proof.proof = client_proof(proof_, options_.tenant, options_.name);
  const FrameHeader header{0, static_cast<std::uint16_t>(MessageType::authenticate), challenge->version};
  append_frame(stream_->output(), header, proof);
  state_.store(State::proving, std::memory_order_relaxed);
}

void RailLink::take_welcome(const Frame& frame, std::uint64_t now_us) {
  Reader reader(frame.payload);
  const std::optional<Welcome> welcome = Welcome::decode(reader);
  if (!welcome || !equal_proofs(welcome->proof, server_proof(proof_))) {
    failed(welcome ? Reason::access_denied : Reason::protocol,
           welcome ? "the peer does not know the secret" : "the peer's welcome is malformed");
    return;
  }
  connection_ = welcome->connection;
  incarnation_ = welcome->incarnation;
  socket_ = stream_->release_socket();
  stream_.reset();
  input_.clear();
  last_reason_ = Reason::none;
  last_message_.clear();
  moved_us_ = now_us;
  state_.store(State::up, std::memory_order_relaxed);
}

void RailLink::refused(const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<ErrorReply> error = ErrorReply::decode(reader);
  const bool says_why = error && error->reason != Reason::none;
  failed(says_why ? error->reason : Reason::protocol, error ? std::string(error->message) : "");
}

void RailLink::failed(Reason reason, std::string message) {
  close();
  last_reason_ = reason;
  last_message_ = std::move(message);
}

void RailLink::close() {
  if (up()) {
    failure_count_.fetch_add(1, std::memory_order_relaxed);
    last_reason_ = Reason::unavailable;
    last_message_ = "the connection was lost";
  }
  stream_.reset();
  socket_.close();
  input_.clear();
  state_.store(State::down, std::memory_order_relaxed);
}

}  // namespace moonpool
