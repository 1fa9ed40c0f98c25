#include "io/rail_link.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "core/checksum.hpp"

namespace moonpool {

void RailLink::push(RailJob job) {
  RailRequest request;
  request.verb = job.verb;
  request.checksum = job.checksum && job.verb == RailVerb::write;
  request.number = ++last_number_;
  request.token = job.token;
  request.offset = job.offset;
  request.length = job.length;
  if (jobs_.empty()) { moved_us_ = steady_us(); }
  inflight_bytes_.store(inflight_bytes() + job.length, std::memory_order_relaxed);
  Sending& sending = jobs_.emplace_back();
  sending.job = job;
  sending.number = request.number;
  encode_rail_request(request, sending.header);
}

bool RailLink::advance(std::uint64_t now_us, std::vector<Ended>& ended) {
  if (state() == State::down) { return false; }
  if (!up()) {
    const State before = state();
    advance_opening(now_us);
    return state() != before;
  }
  const std::size_t ended_before = ended.size();
  const RailStep out = flush();
  const RailStep in = out == RailStep::ended ? RailStep::ended : receive(ended);
  if (in == RailStep::ended) {
    close();
    return true;
  }
  const bool moved = in == RailStep::moved || out == RailStep::moved || ended.size() > ended_before;
  if (moved) { moved_us_ = now_us; }
  return moved;
}

// Moved: something went out.
RailStep RailLink::flush() {
  RailStep step = RailStep::waiting;
  while (send_index_ < jobs_.size()) {
    Gather gather;
    std::size_t skip = front_sent_;
    for (std::size_t index = send_index_; index < jobs_.size(); ++index) {
      Sending& sending = jobs_[index];
      const std::size_t of_payload = skip > sending.header.size() ? skip - sending.header.size() : 0;
      if (!gather.add(sending.header, skip)) { break; }
      const ConstBytes payload = payload_of(sending, of_payload);
      if (!gather.add(payload, skip) || payload.size() < sending.job.source.size()) { break; }
    }
    const ssize_t count = gather.send(socket_.number());
    if (count < 0) { return errno == EAGAIN || errno == EINTR ? step : RailStep::ended; }
    step = RailStep::moved;
    sent(static_cast<std::size_t>(count));
  }
  return step;
}

// What of the payload may be sent now: what is to be summed is summed just before, piece by piece.
ConstBytes RailLink::payload_of(Sending& sending, std::uint64_t skip) const {
  if (!sending.job.checksum || sending.job.verb != RailVerb::write) { return sending.job.source; }
  if (skip == sending.summed && sending.summed < sending.job.length) {
    const std::uint64_t bytes = std::min(hot_bytes, sending.job.length - sending.summed);
    sending.job.sum = crc32c(sending.job.source.subspan(sending.summed, bytes), sending.job.sum);
    sending.summed += bytes;
  }
  return sending.job.source.first(sending.summed);
}

void RailLink::sent(std::size_t count) {
  front_sent_ += count;
  while (send_index_ < jobs_.size()) {
    const Sending& sending = jobs_[send_index_];
    const std::size_t whole = sending.header.size() + sending.job.source.size();
    if (front_sent_ < whole) { return; }
    front_sent_ -= whole;
    if (sending.job.verb == RailVerb::cancel) {
      cancels_.push_back(sending);
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(send_index_));
    } else {
      ++send_index_;
    }
  }
}

RailStep RailLink::receive(std::vector<Ended>& ended) {
  const bool direct = data_coming_ && !jobs_.front().job.target.empty() && coming_bytes() >= direct_bytes_min;
  const RailStep step = direct ? receive_into_target() : input_.receive(socket_.number());
  if (step == RailStep::ended) { return step; }
  return consume(ended) ? step : RailStep::ended;
}

// The rest of the slice into its memory, and with it the header that follows.
RailStep RailLink::receive_into_target() {
  Sending& sending = jobs_.front();
  const std::uint64_t wanted = sending.job.checksum ? std::min(coming_bytes(), hot_bytes) : coming_bytes();
  const MutableBytes target = sending.job.target.subspan(sending.received, wanted);
  const bool last = wanted == coming_bytes();
  const RailStep step = input_.receive(socket_.number(), target, last ? rail_reply_bytes : 0);
  if (step == RailStep::moved) { received(target.first(input_.last_bytes())); }
  return step;
}

// False: what came is no answer to what was asked.
bool RailLink::consume(std::vector<Ended>& ended) {
  while (true) {
    if (data_coming_) {
      take_buffered();
      if (coming_bytes() > 0) { return true; }
      data_coming_ = false;
      end_front(Reason::none, ended);
      continue;
    }
    const ConstBytes buffered = input_.buffered();
    if (buffered.size() < rail_reply_bytes) { return true; }
    const std::optional<RailReply> reply = decode_rail_reply(buffered.first<rail_reply_bytes>());
    if (!reply) { return false; }
    input_.consume(rail_reply_bytes);
    if (!take_reply(*reply, ended)) { return false; }
  }
}

bool RailLink::take_reply(const RailReply& reply, std::vector<Ended>& ended) {
  if (reply.answer == RailAnswer::dropped) {
    const auto found = std::find_if(cancels_.begin(), cancels_.end(),
                                    [&](const Sending& sending) { return sending.number == reply.number; });
    if (found == cancels_.end()) { return false; }
    ended.push_back({found->job, reply.reason});
    cancels_.erase(found);
    return true;
  }
  if (send_index_ == 0 || jobs_.front().number != reply.number) { return false; }
  const RailJob& job = jobs_.front().job;
  const bool is_read = job.verb == RailVerb::read;
  if (reply.answer == RailAnswer::data) {
    data_coming_ = is_read && reply.length == job.length;
    return data_coming_;
  }
  if (reply.answer == RailAnswer::done && is_read) { return false; }
  Reason reason = reply.reason;
  if (reason == Reason::none && job.checksum && reply.checksum != job.sum) { reason = Reason::damaged; }
  end_front(reason, ended);
  return true;
}

void RailLink::take_buffered() {
  Sending& sending = jobs_.front();
  const ConstBytes buffered = input_.buffered();
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(coming_bytes(), buffered.size()));
  if (count == 0) { return; }
  if (!sending.job.target.empty()) {
    std::memcpy(sending.job.target.data() + sending.received, buffered.data(), count);
  }
  received(buffered.first(count));
  input_.consume(count);
}

void RailLink::received(ConstBytes bytes) {
  Sending& sending = jobs_.front();
  if (sending.job.checksum) { sending.job.sum = crc32c(bytes, sending.job.sum); }
  sending.received += bytes.size();
}

void RailLink::end_front(Reason reason, std::vector<Ended>& ended) {
  const RailJob job = jobs_.front().job;
  jobs_.pop_front();
  --send_index_;
  inflight_bytes_.store(inflight_bytes() - job.length, std::memory_order_relaxed);
  if (reason == Reason::none) {
    std::atomic<std::uint64_t>& moved = job.verb == RailVerb::read ? read_bytes_ : written_bytes_;
    moved.fetch_add(job.length, std::memory_order_relaxed);
  }
  ended.push_back({job, reason});
}

std::deque<RailJob> RailLink::take_jobs() {
  std::deque<RailJob> left;
  for (const Sending& sending : jobs_) { left.push_back(sending.job); }
  for (const Sending& sending : cancels_) { left.push_back(sending.job); }
  jobs_.clear();
  cancels_.clear();
  send_index_ = 0;
  front_sent_ = 0;
  data_coming_ = false;
  inflight_bytes_.store(0, std::memory_order_relaxed);
  return left;
}

bool RailLink::forget(const RailBatch* batch, std::vector<RailJob>& unsent) {
  std::size_t index = 0;
  while (index < jobs_.size()) {
    Sending& sending = jobs_[index];
    const bool untouched = index > send_index_ || (index == send_index_ && front_sent_ == 0);
    if (sending.job.batch != batch) {
      ++index;
    } else if (untouched) {
      inflight_bytes_.store(inflight_bytes() - sending.job.length, std::memory_order_relaxed);
      unsent.push_back(sending.job);
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (sending.job.verb != RailVerb::read && sending.job.length > 0) {
      return false;
    } else {
      sending.job.batch = nullptr;
      sending.job.target = {};
      ++index;
    }
  }
  return true;
}

short RailLink::wanted_events() const {
  const bool writes =
      state() == State::connecting || (stream_ && stream_->unsent_bytes() > 0) || (up() && send_index_ < jobs_.size());
  return static_cast<short>((state() == State::connecting ? 0 : POLLIN) | (writes ? POLLOUT : 0));
}

RailStatus RailLink::status() const {
  RailStatus status;
  status.peer = route_.peer;
  status.local = route_.local;
  const State now = state();
  status.state = now == State::up ? "up" : now == State::down ? "down" : "connecting";
  status.inflight_bytes = inflight_bytes();
  status.read_bytes = read_bytes_.load(std::memory_order_relaxed);
  status.written_bytes = written_bytes_.load(std::memory_order_relaxed);
  status.failure_count = failure_count_.load(std::memory_order_relaxed);
  return status;
}

}  // namespace moonpool
