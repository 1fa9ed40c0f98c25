#include "io/rail_batch.hpp"

#include <algorithm>
#include <utility>

#include "core/checksum.hpp"
#include "io/handshake.hpp"

namespace moonpool {

RailBatch::RailBatch(std::vector<RailOperation> operations, RailOrder order, std::optional<RailVerb> last,
                     std::function<void()> on_done)
    : operations_(std::move(operations)),
      order_(std::move(order)),
      last_(last),
      on_done_(std::move(on_done)),
      outcomes_(operations_.size()) {
  left_bytes_.reserve(operations_.size());
  for (const RailOperation& operation : operations_) {
    left_bytes_.push_back(operation.local.length);
    open_count_ += operation.local.length > 0 ? 1 : 0;
  }
  skip_empty();
  if (last_ == RailVerb::message) { last_identity_ = {random_u64(), random_u64()}; }
}

bool RailBatch::wait(Deadline until) {
  std::unique_lock lock(mutex_);
  while (!done()) {
    const std::uint64_t remaining_us = until.remaining_us();
    if (remaining_us == 0) { return false; }
    finished_.wait_for(lock, std::chrono::microseconds(remaining_us));
  }
  return true;
}

bool RailBatch::has_next() const {
  return !again_.empty() || cut_operation_ < operations_.size() || (open_count_ == 0 && last_ && !last_is_out_);
}

std::uint64_t RailBatch::next_bytes(std::uint64_t slice_bytes) const {
  if (!again_.empty()) { return again_.front().length; }
  if (cut_operation_ == operations_.size()) { return order_.message.size(); }
  return std::min(slice_bytes, operations_[cut_operation_].local.length - cut_bytes_);
}

RailJob RailBatch::next(std::uint64_t slice_bytes) {
  if (!again_.empty()) {
    RailJob job = again_.front();
    again_.pop_front();
    job.sum = 0;
    return job;
  }
  if (cut_operation_ < operations_.size()) { return cut(slice_bytes); }
  last_is_out_ = true;
  RailJob job;
  job.verb = *last_;
  job.batch = this;
  if (job.verb == RailVerb::message) {
    job.token = last_identity_;
    job.source = std::as_bytes(std::span(order_.message));
    job.length = order_.message.size();
  }
  return job;
}

RailJob RailBatch::cut(std::uint64_t slice_bytes) {
  const RailOperation& operation = operations_[cut_operation_];
  RailJob job;
  job.verb = operation.write ? RailVerb::write : RailVerb::read;
  job.checksum = operation.checksum;
  job.operation = static_cast<std::uint32_t>(cut_operation_);
  job.batch = this;
  job.token = operation.token;
  job.begin = cut_bytes_;
  job.offset = operation.offset + cut_bytes_;
  job.length = std::min(slice_bytes, operation.local.length - cut_bytes_);
  const Piece piece{operation.local.address + cut_bytes_, job.length};
  if (operation.write) {
    job.source = readable(piece);
  } else {
    job.target = writable(piece);
  }
  cut_bytes_ += job.length;
  if (cut_bytes_ == operation.local.length) {
    cut_bytes_ = 0;
    ++cut_operation_;
    skip_empty();
  }
  return job;
}

void RailBatch::skip_empty() {
  while (cut_operation_ < operations_.size() && operations_[cut_operation_].local.length == 0) { ++cut_operation_; }
}

void RailBatch::put_back(const RailJob& job) {
  if (job.verb != RailVerb::read && job.verb != RailVerb::write) {
    last_is_out_ = false;
  } else if (const Reason reason = outcomes_[job.operation].reason; reason != Reason::none) {
    settle(job.operation, job.length);
  } else {
    again_.push_back(job);
  }
}

void RailBatch::ended(const RailJob& job, Reason reason, std::uint64_t slice_bytes) {
  if (job.verb != RailVerb::read && job.verb != RailVerb::write) {
    last_reason_ = reason;
    last_.reset();
    return;
  }
  RailOutcome& outcome = outcomes_[job.operation];
  if (reason != Reason::none && outcome.reason == Reason::none) {
    outcome.reason = reason;
    drop_rest(job.operation);
  }
  settle(job.operation, job.length);
  if (outcome.reason == Reason::none && job.checksum) { note_sum(job, slice_bytes); }
}

// Slices that are out keep an operation open: its memory is theirs until they have ended.
void RailBatch::settle(std::size_t operation, std::uint64_t byte_count) {
  left_bytes_[operation] -= byte_count;
  if (left_bytes_[operation] == 0) { --open_count_; }
}

// A slice of the operation has failed: the others do not go out any more.
void RailBatch::drop_rest(std::size_t operation) {
  std::uint64_t dropped_bytes = 0;
  std::erase_if(again_, [&](const RailJob& job) {
    if (job.operation != operation) { return false; }
    dropped_bytes += job.length;
    return true;
  });
  if (cut_operation_ == operation) {
    dropped_bytes += operations_[operation].local.length - cut_bytes_;
    cut_bytes_ = 0;
    ++cut_operation_;
    skip_empty();
  }
  left_bytes_[operation] -= dropped_bytes;  // the failed slice itself is still to be settled
}

void RailBatch::note_sum(const RailJob& job, std::uint64_t slice_bytes) {
  const std::uint64_t length = operations_[job.operation].local.length;
  RailOutcome& outcome = outcomes_[job.operation];
  if (length == job.length) {
    outcome.checksum = job.sum;
    return;
  }
  if (slice_sums_.empty()) { slice_sums_.resize(operations_.size()); }
  std::vector<std::uint32_t>& sums = slice_sums_[job.operation];
  if (sums.empty()) { sums.resize((length + slice_bytes - 1) / slice_bytes); }
  sums[job.begin / slice_bytes] = job.sum;
  if (left_bytes_[job.operation] > 0) { return; }
  outcome.checksum = sums.front();
  for (std::size_t index = 1; index < sums.size(); ++index) {
    const std::uint64_t bytes = std::min(slice_bytes, length - index * slice_bytes);
    outcome.checksum = crc32c_combine(outcome.checksum, sums[index], bytes);
  }
}

void RailBatch::may_be_applied_later(const RailJob& job) {
  if (job.verb == RailVerb::write) { outcomes_[job.operation].may_be_applied_later = true; }
}

void RailBatch::give_up(Reason reason) {
  for (std::size_t index = 0; index < operations_.size(); ++index) {
    if (left_bytes_[index] > 0) { outcomes_[index].reason = reason; }
    left_bytes_[index] = 0;
  }
  if (last_) { last_reason_ = reason; }
  open_count_ = 0;
  last_.reset();
  again_.clear();
  cut_operation_ = operations_.size();
}

void RailBatch::finish() {
  {
    const std::lock_guard lock(mutex_);
    done_.store(true, std::memory_order_release);
  }
  finished_.notify_all();
  if (const std::function<void()> on_done = std::exchange(on_done_, nullptr)) { on_done(); }
}

}  // namespace moonpool
