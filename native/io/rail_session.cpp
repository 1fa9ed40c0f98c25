#include "io/rail_session.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/checksum.hpp"
#include "io/clock.hpp"
#include "io/rail_pieces.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t turn_bytes = 8ULL << 20U;  // then other rails of the thread have theirs
constexpr std::size_t reply_count_max = 1'024;     // unsent; more requests wait in the socket

SliceRequest slice_of(const RailRequest& request) {
  return {request.token, request.offset, request.length, request.verb == RailVerb::write};
}

}  // namespace

RailSession::RailSession(ProvenRail rail, Surroundings surroundings)
    : rail_(std::move(rail)), surroundings_(std::move(surroundings)), moved_ms_(boot_ms()) {}

RailSession::~RailSession() {
  if (coming_.entered) { surroundings_.authority.leave(slice_of(coming_.request)); }
  for (const Reply& reply : replies_) {
    if (!reply.payload.empty()) { surroundings_.authority.leave(reply.slice); }
  }
}

bool RailSession::serve() {
  turn_bytes_left_ = turn_bytes;
  while (true) {
    if (!consume()) {
      surroundings_.counters.malformed.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    if (crowded()) {
      if (flush() == RailStep::ended) { return false; }
      if (crowded()) { return true; }  // goes on when the peer takes replies
      continue;
    }
    const RailStep step = receive();
    if (step == RailStep::ended) { return false; }
    if (step == RailStep::waiting || turn_bytes_left_ == 0) { break; }
  }
  return consume() && flush() != RailStep::ended;
}

RailStep RailSession::receive() {
  const bool direct = coming_.open && !coming_.target.empty() && remaining() >= direct_bytes_min;
  const RailStep step = direct ? receive_into_target() : input_.receive(socket());
  if (step == RailStep::moved) {
    moved_ms_ = boot_ms();
    turn_bytes_left_ -= std::min(turn_bytes_left_, input_.last_bytes());
  }
  return step;
}

// The rest of the slice into its memory, and with it the header that follows.
RailStep RailSession::receive_into_target() {
  const std::uint64_t wanted = coming_.request.checksum ? std::min(remaining(), hot_bytes) : remaining();
  const MutableBytes target = coming_.target.subspan(coming_.received, wanted);
  const RailStep step = input_.receive(socket(), target, wanted == remaining() ? rail_request_bytes : 0);
  if (step == RailStep::moved) { applied(input_.last_bytes()); }
  return step;
}

// False: what came is no request.
bool RailSession::consume() {
  while (!crowded()) {
    if (coming_.open) {
      take_buffered();
      if (remaining() > 0) { return true; }
      finish();
      continue;
    }
    const ConstBytes buffered = input_.buffered();
    if (buffered.size() < rail_request_bytes) { return true; }
    const std::optional<RailRequest> request = decode_rail_request(buffered.first<rail_request_bytes>());
    if (!request) { return false; }
    input_.consume(rail_request_bytes);
    begin(*request);
  }
  return true;
}

void RailSession::begin(const RailRequest& request) {
  switch (request.verb) {
    case RailVerb::write: begin_write(request); return;
    case RailVerb::read: answer_read(request); return;
    case RailVerb::message:
      message_.assign(request.length, '\0');
      coming_ = {request, std::as_writable_bytes(std::span(message_)), 0, 0, Reason::none, false, true};
      return;
    case RailVerb::probe: answer({RailAnswer::done, Reason::none, request.number, 0, 0}); return;
    case RailVerb::cancel:
      surroundings_.cancel(*this, static_cast<ConnectionId>(request.offset), request.number);
      return;
  }
}

void RailSession::begin_write(const RailRequest& request) {
  Coming coming{request, {}, 0, 0, Reason::none, false, true};
  const std::optional<MutableBytes> memory = surroundings_.authority.enter(slice_of(request), coming.refusal);
  if (memory) {
    coming.target = *memory;
    coming.entered = true;
  }
  coming_ = coming;
}

void RailSession::answer_read(const RailRequest& request) {
  const SliceRequest slice = slice_of(request);
  Reason refusal = Reason::none;
  const std::optional<MutableBytes> memory = surroundings_.authority.enter(slice, refusal);
  if (!memory) {
    surroundings_.counters.refused_slices.fetch_add(1, std::memory_order_relaxed);
    answer({RailAnswer::failed, refusal, request.number, 0, 0});
    return;
  }
  answer({RailAnswer::data, Reason::none, request.number, request.length, 0});
  replies_.back().payload = *memory;
  replies_.back().slice = slice;
}

// What of the slice lies in the buffer already.
void RailSession::take_buffered() {
  const ConstBytes buffered = input_.buffered();
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(remaining(), buffered.size()));
  if (count == 0) { return; }
  if (!coming_.target.empty()) { std::memcpy(coming_.target.data() + coming_.received, buffered.data(), count); }
  input_.consume(count);
  applied(count);
}

void RailSession::applied(std::uint64_t count) {
  Coming& coming = coming_;
  if (coming.request.checksum && !coming.target.empty()) {
    coming.checksum = crc32c(coming.target.subspan(coming.received, count), coming.checksum);
  }
  coming.received += count;
}

void RailSession::finish() {
  Coming& coming = coming_;
  RailReply reply{RailAnswer::done, coming.refusal, coming.request.number, 0, coming.checksum};
  RailCounters& counters = surroundings_.counters;
  if (coming.request.verb == RailVerb::message) {
    reply.reason = deliver();
  } else if (coming.entered) {
    surroundings_.authority.leave(slice_of(coming.request));
    counters.written_bytes.fetch_add(coming.request.length, std::memory_order_relaxed);
    counters.written_slices.fetch_add(1, std::memory_order_relaxed);
  } else {
    counters.refused_slices.fetch_add(1, std::memory_order_relaxed);
  }
  if (reply.reason != Reason::none) { reply.answer = RailAnswer::failed; }
  coming_ = {};
  answer(reply);
}

Reason RailSession::deliver() {
  if (surroundings_.inbox == nullptr) { return Reason::access_denied; }
  surroundings_.counters.messages.fetch_add(1, std::memory_order_relaxed);
  return surroundings_.inbox->deliver(rail_.principal, coming_.request.token, std::move(message_));
}

void RailSession::answer(const RailReply& reply) { encode_rail_reply(reply, replies_.emplace_back().header); }

bool RailSession::answer_dropped(std::uint32_t number) {
  answer({RailAnswer::dropped, Reason::none, number, 0, 0});
  return flush() != RailStep::ended;
}

// Moved: nothing is left to send.
RailStep RailSession::flush() {
  while (!replies_.empty()) {
    Gather gather;
    std::size_t skip = front_sent_;
    for (const Reply& reply : replies_) {
      if (!gather.add(reply.header, skip) || !gather.add(reply.payload, skip)) { break; }
    }
    const ssize_t count = gather.send(socket());
    if (count < 0) { return errno == EAGAIN || errno == EINTR ? RailStep::waiting : RailStep::ended; }
    moved_ms_ = boot_ms();
    sent(static_cast<std::size_t>(count));
  }
  return RailStep::moved;
}

void RailSession::sent(std::size_t count) {
  front_sent_ += count;
  while (!replies_.empty()) {
    const Reply& front = replies_.front();
    const std::size_t whole = front.header.size() + front.payload.size();
    if (front_sent_ < whole) { return; }
    front_sent_ -= whole;
    if (!front.payload.empty()) {
      surroundings_.authority.leave(front.slice);
      surroundings_.counters.read_bytes.fetch_add(front.payload.size(), std::memory_order_relaxed);
      surroundings_.counters.read_slices.fetch_add(1, std::memory_order_relaxed);
    }
    replies_.pop_front();
  }
}

bool RailSession::crowded() const { return replies_.size() >= reply_count_max; }

std::uint32_t RailSession::wanted_events() const {
  return (crowded() ? 0U : static_cast<std::uint32_t>(EPOLLIN)) |
         (replies_.empty() ? 0U : static_cast<std::uint32_t>(EPOLLOUT));
}

bool RailSession::is_late(std::uint64_t now_ms) const {
  const bool waits = coming_.open || !input_.buffered().empty() || !replies_.empty();
  return waits && now_ms > moved_ms_ + surroundings_.silence_ms;
}

}  // namespace moonpool
