#include "io/publisher.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "io/clock.hpp"
#include "io/handshake.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t retry_first_ms = 50;
constexpr std::uint64_t retry_last_ms = 1'000;
constexpr std::uint64_t greeting_ms_max = 2'000;
constexpr std::uint64_t silent_ms_max = 1'000;  // a directory hears of its owners at least so often
constexpr std::uint32_t chunk_count = 512;            // objects looked at in one step of a snapshot: well below 1 ms
constexpr std::size_t events_per_message_max = 1'024;
constexpr std::size_t waiting_count_max = 262'144;    // more, and a snapshot is cheaper than the queue
constexpr std::uint64_t unacknowledged_count_max = 256;
constexpr std::size_t unsent_bytes_max = 1U << 20U;

FrameHeader header_of(MessageType type) { return {0, static_cast<std::uint16_t>(type)}; }

bool is_reply(const Frame& frame, MessageType type) {
  return frame.header.type == (static_cast<std::uint16_t>(type) | static_cast<std::uint16_t>(MessageType::reply_bit));
}

}  // namespace

const char* name_of(Publisher::State state) {
  switch (state) {
    case Publisher::State::away: return "away";
    case Publisher::State::greeting: return "greeting";
    case Publisher::State::snapshot: return "snapshot";
    case Publisher::State::live: return "live";
  }
  return "unknown";
}

Publisher::Publisher(EventLoop& loop, const ServerIdentity& identity, Route route, SnapshotSource source)
    : loop_(loop),
      identity_(identity),
      route_(std::move(route)),
      address_(parse_peer_address(route_.directory)),
      source_(std::move(source)) {}

Publisher::~Publisher() = default;

void Publisher::tick(std::uint64_t now_ms) {
  closed_.clear();
  if (state_ == State::greeting && now_ms > greeting_since_ms_ + greeting_ms_max) { disconnect(); }
  if (state_ == State::away && now_ms >= retry_at_ms_) { connect(); }
  say_that_it_lives(now_ms);
}

// Silence must mean that something is wrong, also where nothing is stored for hours.
void Publisher::say_that_it_lives(std::uint64_t now_ms) {
  if (state_ != State::live || !waiting_.empty() || now_ms < sent_at_ms_ + silent_ms_max || !can_send()) { return; }
  send_events(EventsPhase::live, {});
  flush();
}

void Publisher::connect() {
  if (address_.remote() && !try_resolve(address_.tcp)) { return; }  // the name is being asked for: see at the next tick
  Descriptor socket = begin_to_connect();
  if (socket.open()) {
    greet(std::move(socket));
  } else {
    disconnect();
  }
}

// By TCP it is not connected yet: what is written waits until it is, and an error ends it like any other.
Descriptor Publisher::begin_to_connect() {
  if (!address_.remote()) { return connect_to(address_.path); }
  const std::vector<TcpTarget> targets = try_resolve(address_.tcp).value_or(std::vector<TcpTarget>{});
  return targets.empty() ? Descriptor{} : begin_connect(targets[next_target_++ % targets.size()], {});
}

void Publisher::greet(Descriptor socket) {
  stream_ = std::make_unique<FrameStream>(std::move(socket), FrameStream::Descriptors::refused);
  state_ = State::greeting;
  greeting_since_ms_ = boot_ms();
  watched_events_ = EPOLLIN;
  loop_.watch(stream_->socket().number(), EPOLLIN, [this](std::uint32_t events) { ready(events); });
  client_nonce_ = random_nonce();
  Hello hello;
  hello.role = Role::owner;
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.incarnation = identity_.incarnation;
  hello.nonce = client_nonce_;
  hello.tenant = route_.serving;  // of an owner: where it serves
  hello.name = identity_.name;
  hello.site = identity_.site;
  append_frame(stream_->output(), header_of(MessageType::hello), hello);
  flush();
}

void Publisher::disconnect() {
  if (stream_) {
    loop_.forget(stream_->socket().number());
    closed_.push_back(std::move(stream_));
  }
  state_ = State::away;
  waiting_.clear();
  sequence_ = acknowledged_ = 0;
  retry_after_ms_ = retry_after_ms_ == 0 ? retry_first_ms : std::min(retry_last_ms, retry_after_ms_ * 2);
  retry_at_ms_ = boot_ms() + retry_after_ms_;
}

void Publisher::close() {
  if (stream_ && state_ != State::greeting) {
    append_empty_frame(stream_->output(), header_of(MessageType::goodbye));
    (void)stream_->flush();
  }
  disconnect();
  closed_.clear();
}

void Publisher::ready(std::uint32_t epoll_events) {
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && stream_->receive() == FrameStream::Received::ended) {
    disconnect();
    return;
  }
  Frame frame;
  FrameStream::Next next = FrameStream::Next::frame;
  while ((next = stream_->next(frame, frame_payload_bytes_max)) == FrameStream::Next::frame) {
    if (!take(frame)) {
      disconnect();
      return;
    }
  }
  if (next == FrameStream::Next::malformed) {
    disconnect();
    return;
  }
  flush();
}

bool Publisher::take(const Frame& frame) {
  if (state_ == State::greeting) {
    return is_reply(frame, MessageType::hello) ? take_challenge(frame) : take_welcome(frame);
  }
  if (!is_reply(frame, MessageType::events)) { return false; }
  Reader reader(frame.payload);
  const std::optional<EventsReply> reply = EventsReply::decode(reader);
  if (!reply || reply->sequence >= sequence_) { return false; }
  acknowledged_ = std::max(acknowledged_, reply->sequence + 1);
  return true;
}

bool Publisher::take_challenge(const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<Challenge> challenge = Challenge::decode(reader);
  if (!challenge) { return false; }
  server_nonce_ = challenge->nonce;
  Authenticate proof;
  proof.proof = client_proof({identity_.secret, server_nonce_, client_nonce_}, route_.serving, identity_.name);
  append_frame(stream_->output(), header_of(MessageType::authenticate), proof);
  return true;
}

bool Publisher::take_welcome(const Frame& frame) {
  Reader reader(frame.payload);
  const std::optional<Welcome> welcome =
      is_reply(frame, MessageType::authenticate) ? Welcome::decode(reader) : std::nullopt;
  if (!welcome || !equal_proofs(welcome->proof, server_proof({identity_.secret, server_nonce_, client_nonce_}))) {
    return false;
  }
  retry_after_ms_ = 0;
  begin_snapshot();
  return true;
}

void Publisher::begin_snapshot() {
  state_ = State::snapshot;
  cursor_ = 0;
  ++snapshot_count_;
  waiting_.clear();
  send_events(EventsPhase::snapshot_begin, {});
}

void Publisher::enqueue(std::span<const Event> events) {
  if (state_ != State::snapshot && state_ != State::live) {
    return;  // the snapshot that follows the next welcome will tell
  }
  if (waiting_.size() + events.size() > waiting_count_max) {
    begin_snapshot();
    return;
  }
  waiting_.insert(waiting_.end(), events.begin(), events.end());
}

bool Publisher::can_send() const {
  return stream_ && sequence_ - acknowledged_ < unacknowledged_count_max && stream_->unsent_bytes() < unsent_bytes_max;
}

bool Publisher::work() {
  if ((state_ != State::snapshot && state_ != State::live) || !can_send()) { return false; }
  if (!waiting_.empty()) {  // before the next chunk: the order of the stream is the order of the table
    const auto count = static_cast<std::ptrdiff_t>(std::min(waiting_.size(), events_per_message_max));
    send_events(EventsPhase::live, {waiting_.begin(), waiting_.begin() + count});
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  } else if (state_ == State::snapshot) {
    std::vector<Event> events;
    cursor_ = source_(cursor_, chunk_count, events);
    if (!events.empty()) { send_events(EventsPhase::snapshot_chunk, std::move(events)); }
    if (cursor_ == 0) {
      send_events(EventsPhase::snapshot_end, {});
      state_ = State::live;
    }
  }
  flush();
  return (state_ == State::snapshot || !waiting_.empty()) && can_send();
}

void Publisher::send_events(EventsPhase phase, std::vector<Event> events) {
  Events message;
  message.incarnation = identity_.incarnation;
  message.sequence = sequence_++;
  sent_at_ms_ = boot_ms();
  message.phase = phase;
  message.events = std::move(events);
  append_frame(stream_->output(), header_of(MessageType::events), message);
}

void Publisher::flush() {
  if (!stream_->flush()) {
    disconnect();
    return;
  }
  const std::uint32_t events =
      static_cast<std::uint32_t>(EPOLLIN) | (stream_->unsent_bytes() > 0 ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  if (events != watched_events_) {
    loop_.change(stream_->socket().number(), events);
    watched_events_ = events;
  }
}

}  // namespace moonpool
