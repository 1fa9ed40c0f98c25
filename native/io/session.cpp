#include "io/session.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>

#include "io/handshake.hpp"
#include "io/socket.hpp"

namespace moonpool {
namespace {

constexpr std::size_t abandoned_count_max = 4'096;
constexpr std::size_t post_count_max = 1'024;
constexpr std::size_t touched_count_max = batch_count_max;
constexpr std::uint64_t touched_interval_us = 2'000;  // recency may be that late; a message costs more than a read
constexpr std::size_t unsent_bytes_max = 8U << 20U;

bool may_spin() {
  static const bool several = std::thread::hardware_concurrency() > 1;
  return several;
}

bool poll_until(const Descriptor& socket, short events, Deadline deadline) {
  const std::uint64_t remaining_us = deadline.remaining_us();
  const timespec limit{static_cast<time_t>(remaining_us / 1'000'000),
                       static_cast<long>(remaining_us % 1'000'000 * 1'000)};
  pollfd state{socket.number(), events, 0};
  return ::ppoll(&state, 1, &limit, nullptr) > 0;
}

bool is_reply(const Frame& frame, MessageType type) {
  return frame.header.type == (static_cast<std::uint16_t>(type) | static_cast<std::uint16_t>(MessageType::reply_bit));
}

}  // namespace

Session::Session(Descriptor socket)
    : stream_(std::move(socket), FrameStream::Descriptors::taken), fork_count_(fork_count()) {}

Session::~Session() {
  heartbeat_.reset();
  if (!of_this_process() || broken_.load() || info_.incarnation == 0) { return; }
  try {
    flush_queued();
    append_empty_frame(stream_.output(), {0, static_cast<std::uint16_t>(MessageType::goodbye), version_});
    (void)stream_.flush();
  } catch (const std::exception&) {
    broken_.store(true);  // no memory for a goodbye: the node lets go when this process ends
  }
}

bool Session::alive() const {
  pollfd state{stream_.socket().number(), POLLIN | POLLRDHUP, 0};
  return !broken_.load() && (::poll(&state, 1, 0) == 0 || (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0);
}

std::uint32_t Session::enqueue(std::vector<std::byte> frame) {
  spoken_.store(true, std::memory_order_relaxed);
  const std::uint32_t request_id = ++last_request_id_;
  const auto header_bytes = std::span<std::byte, frame_header_bytes>(frame.data(), frame_header_bytes);
  FrameHeader header = parse_header(header_bytes).header;
  header.request_id = request_id;
  encode_header(header, header_bytes);
  std::vector<std::byte>& output = stream_.output();
  if (output.empty()) {
    output = std::move(frame);
  } else {
    output.insert(output.end(), frame.begin(), frame.end());
  }
  return request_id;
}

Answer Session::call_empty(MessageType type, Deadline deadline) {
  std::vector<std::byte> frame;
  append_empty_frame(frame, {0, static_cast<std::uint16_t>(type), version_});
  return exchange(type, std::move(frame), deadline);
}

Answer Session::exchange(MessageType type, std::vector<std::byte> frame, Deadline deadline) {
  Answer answer;
  if (!of_this_process()) {
    answer.reason = Reason::unavailable;
    return answer;
  }
  Turn::Guard turn = turn_.take(deadline);
  if (!turn) {
    answer.reason = Reason::timed_out;
    return answer;
  }
  answer = exchange_in_turn(type, std::move(frame), deadline);
  end_turn(std::move(turn));
  return answer;
}

Answer Session::exchange_in_turn(MessageType type, std::vector<std::byte> frame, Deadline deadline) {
  Answer answer;
  answer.reason = Reason::unavailable;
  make_room(deadline);
  if (broken_.load() || crowded()) {
    answer.reason = broken_.load() ? Reason::unavailable : Reason::timed_out;
    answer.asked = true;
    answer.message = last_words_;
    return answer;
  }
  flush_queued();
  const std::uint32_t request_id = enqueue(std::move(frame));
  answer.asked = true;
  Step step = Step::waiting;
  Heard heard = Heard::something;
  while (step == Step::waiting && heard == Heard::something) {
    const bool flushed = stream_.flush();
    heard = listen(deadline);
    step = take_frames(request_id, answer);  // its last words may be there although it takes ours no more
    if (step == Step::waiting && (heard == Heard::the_end || !flushed)) { step = Step::broken; }
  }
  if (step == Step::waiting) {
    abandoned_.emplace(request_id, type);
    answer.reason = Reason::timed_out;
  } else if (step == Step::broken) {
    broken_.store(true);
    answer.reason = last_reason_;
    answer.message = last_words_;
  }
  return answer;
}

bool Session::crowded() const {
  return abandoned_.size() >= abandoned_count_max || stream_.unsent_bytes() >= unsent_bytes_max;
}

// A peer that was silent for long has left too much unsent or unanswered to ask more. Whoever asks next waits for it
// like for an answer, so that a peer that speaks again is heard.
void Session::make_room(Deadline deadline) {
  Answer nobody;
  Heard heard = Heard::something;
  while (!broken_.load() && crowded() && heard == Heard::something) {
    const bool flushed = stream_.flush();
    heard = listen(deadline);
    if (take_frames(0, nobody) == Step::broken || heard == Heard::the_end || !flushed) { broken_.store(true); }
  }
}

// Takes what comes before the deadline. "Something" also means that the socket takes more of what is unsent.
Session::Heard Session::listen(Deadline deadline) {
  const std::uint64_t since_us = steady_us();
  while (true) {
    const FrameStream::Received received = stream_.receive();
    const std::uint64_t now_us = steady_us();
    if (received != FrameStream::Received::nothing_yet) { spin_.ended(now_us - since_us); }
    if (received == FrameStream::Received::some) { return Heard::something; }
    if (received == FrameStream::Received::ended) { return Heard::the_end; }
    if (now_us >= deadline.at_us()) { return Heard::nothing; }
    if (may_spin() && spin_.goes_on(since_us, now_us)) { continue; }
    const bool unsent = stream_.unsent_bytes() > 0;
    const short events = static_cast<short>(unsent ? POLLIN | POLLOUT : POLLIN);
    if (poll_until(stream_.socket(), events, deadline) && unsent) { return Heard::something; }
  }
}

Session::Step Session::take_frames(std::uint32_t request_id, Answer& answer) {
  Frame frame;
  FrameStream::Next next = FrameStream::Next::incomplete;
  while ((next = stream_.next(frame, frame_payload_bytes_max)) == FrameStream::Next::frame) {
    heard_.store(true, std::memory_order_relaxed);
    if (frame.header.type == static_cast<std::uint16_t>(MessageType::error)) {
      Reader reader(frame.payload);
      if (const std::optional<ErrorReply> error = ErrorReply::decode(reader)) {
        last_reason_ = error->reason;
        last_words_ = error->message;
      }
      return Step::broken;
    }
    if (take_frame(frame, request_id, answer)) { return Step::answered; }
    if (broken_.load()) { return Step::broken; }
  }
  return next == FrameStream::Next::malformed ? Step::broken : Step::waiting;
}

bool Session::take_frame(const Frame& frame, std::uint32_t request_id, Answer& answer) {
  if (frame.header.request_id == request_id && request_id != 0) {
    answer.reason = Reason::none;
    answer.payload.assign(frame.payload.begin(), frame.payload.end());
    if (is_reply(frame, MessageType::arena)) { answer.file = stream_.take_descriptor(); }
    return true;
  }
  const auto found = abandoned_.find(frame.header.request_id);
  if (found == abandoned_.end()) {
    last_reason_ = Reason::protocol;
    last_words_ = "a reply that nobody asked for";
    broken_.store(true);
    return false;
  }
  const MessageType type = found->second;
  abandoned_.erase(found);
  take_late(type, frame);
  return false;
}

// Nobody waits for this reply any more, but what it gave us has to be given back.
void Session::take_late(MessageType type, const Frame& frame) {
  Reader reader(frame.payload);
  if (type == MessageType::hold) {
    if (const std::optional<HoldReply> reply = HoldReply::decode(reader)) {
      const std::lock_guard lock(queue_mutex_);
      for (const HoldResult& item : reply->items) {
        if (item.status == Status::hit) { releases_.push_back(item.generation); }
      }
    }
  } else if (type == MessageType::reserve) {
    Abort abort;
    abort.incarnation = info_.incarnation;
    if (const std::optional<ReserveReply> reply = ReserveReply::decode(reader)) {
      for (const ReserveResult& item : reply->items) {
        if (item.status == Status::stored) { abort.generations.push_back(item.generation); }
      }
    }
    if (!abort.generations.empty()) {
      std::vector<std::byte> request;
      append_frame(request, {0, static_cast<std::uint16_t>(MessageType::abort), version_}, abort);
      abandoned_.emplace(enqueue(std::move(request)), MessageType::abort);
    }
  } else if (type == MessageType::arena) {
    (void)stream_.take_descriptor();
  }
}

void Session::flush_queued() {
  Release message;
  message.incarnation = info_.incarnation;
  Release touched;
  touched.incarnation = info_.incarnation;
  std::vector<Post> posts;
  {
    const std::lock_guard lock(queue_mutex_);
    const std::size_t count = std::min<std::size_t>(releases_.size(), batch_count_max);
    message.generations.assign(releases_.end() - static_cast<std::ptrdiff_t>(count), releases_.end());
    releases_.resize(releases_.size() - count);
    touched.generations.swap(touched_);
    if (!touched.generations.empty()) { touched_at_us_ = steady_us(); }
    posts.swap(posts_);
  }
  if (!message.generations.empty()) {
    append_frame(stream_.output(), {0, static_cast<std::uint16_t>(MessageType::release), version_}, message);
  }
  if (!touched.generations.empty()) {
    append_frame(stream_.output(), {0, static_cast<std::uint16_t>(MessageType::touched), version_}, touched);
  }
  for (Post& post : posts) { abandoned_.emplace(enqueue(std::move(post.frame)), post.type); }
}

// Another thread may queue something while we hold the turn, or just as we give it: whoever comes last sends it.
void Session::end_turn(Turn::Guard turn) {
  while (turn) {
    const bool sendable = !broken_.load() && stream_.unsent_bytes() < unsent_bytes_max;
    if (sendable) { flush_queued(); }
    if (!broken_.load() && !stream_.flush()) { broken_.store(true); }
    turn.give();
    const std::lock_guard lock(queue_mutex_);
    if (sendable && !(releases_.empty() && posts_.empty())) { turn = turn_.take_if_free(); }
  }
}

void Session::release(std::span<const Generation> generations) noexcept {
  if (!of_this_process() || generations.empty()) { return; }
  try {
    {
      const std::lock_guard lock(queue_mutex_);
      releases_.insert(releases_.end(), generations.begin(), generations.end());
    }
    end_turn(turn_.take_if_free());
  } catch (const std::exception&) {
    broken_.store(true);  // no memory to say it: the node lets go when this process ends
  }
}

void Session::touched(std::span<const Generation> generations) noexcept {
  if (!of_this_process() || generations.empty()) { return; }
  try {
    {
      const std::lock_guard lock(queue_mutex_);
      if (touched_.size() + generations.size() > touched_count_max) { return; }  // the peer is silent
      touched_.insert(touched_.end(), generations.begin(), generations.end());
      if (steady_us() < touched_at_us_ + touched_interval_us) { return; }
    }
    end_turn(turn_.take_if_free());
  } catch (const std::exception&) {
    broken_.store(true);  // no memory to say it
  }
}

void Session::send_without_waiting(Post post) {
  if (!of_this_process()) { return; }
  {
    const std::lock_guard lock(queue_mutex_);
    if (posts_.size() >= post_count_max) { return; }  // the peer is silent: nothing would come of it
    posts_.push_back(std::move(post));
  }
  end_turn(turn_.take_if_free());
}

bool Session::drain() {
  Turn::Guard turn = turn_.take_if_free();
  if (!turn) { return false; }
  bool heard = false;
  Answer nobody;
  FrameStream::Received received = FrameStream::Received::some;
  while (!broken_.load() && (received = stream_.receive()) == FrameStream::Received::some) {
    heard = true;
    if (take_frames(0, nobody) == Step::broken) { broken_.store(true); }
  }
  if (received == FrameStream::Received::ended) { broken_.store(true); }
  end_turn(std::move(turn));
  return heard;
}

}  // namespace moonpool
