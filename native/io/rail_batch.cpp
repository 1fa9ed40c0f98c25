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
  if (last_ == RailVerb::message) { last_identity_ = {random_u64(), random_u64()}; }
  if (operations_.empty()) { enter_last(Reason::none); }
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

std::vector<PlannedOperation> RailBatch::planned() const {
  std::vector<PlannedOperation> planned;
  if (phase_ == Phase::last) {
    planned.push_back({.length = std::max<std::uint64_t>(1, order_.message.size())});
  } else if (phase_ == Phase::operations) {
    planned.reserve(operations_.size());
    for (const RailOperation& operation : operations_) {
      planned.push_back({.length = operation.local.length, .write = operation.write});
    }
  }
  return planned;
}

RailJob RailBatch::job(const PlannedSlice& slice) {
  RailJob job = phase_ == Phase::last ? last_job() : RailJob{};
  job.batch = this;
  job.slice = slice.slice;
  if (phase_ == Phase::last) { return job; }
  const RailOperation& operation = operations_[slice.operation];
  job.verb = operation.write ? RailVerb::write : RailVerb::read;
  job.checksum = operation.checksum;
  job.operation = slice.operation;
  job.token = operation.token;
  job.begin = slice.offset;
  job.offset = operation.offset + slice.offset;
  job.length = slice.length;
  const Piece piece{operation.local.address + slice.offset, slice.length};
  if (operation.write) {
    job.source = readable(piece);
  } else {
    job.target = writable(piece);
  }
  return job;
}

RailJob RailBatch::last_job() const {
  RailJob job;
  job.verb = last_.value_or(RailVerb::probe);
  if (job.verb == RailVerb::message) {
    job.token = last_identity_;
    job.source = std::as_bytes(std::span(order_.message));
    job.length = order_.message.size();
  }
  return job;
}

// The checksum of the whole is the sum (without carry) of those of its slices, each moved to its place by as many
// zeros as bytes follow it: so slices may end in any order.
void RailBatch::applied(const RailJob& job) {
  if (!job.checksum) { return; }
  const std::uint64_t following = operations_[job.operation].local.length - job.begin - job.length;
  outcomes_[job.operation].checksum ^= following == 0 ? job.sum : crc32c_combine(job.sum, 0, following);
}

void RailBatch::settle(const TransferResult& result) {
  if (phase_ == Phase::last) {
    last_reason_ = result.operations.front().reason;
    phase_ = Phase::complete;
    return;
  }
  Reason first_failure = Reason::none;
  for (std::size_t index = 0; index < outcomes_.size(); ++index) {
    const OperationResult& ended = result.operations[index];
    outcomes_[index].reason = ended.reason;
    outcomes_[index].may_be_applied_later = ended.may_be_applied_later;
    if (first_failure == Reason::none) { first_failure = ended.reason; }
  }
  enter_last(first_failure);
}

// reason: why not all operations are applied, and so the last does not go out.
void RailBatch::enter_last(Reason reason) {
  phase_ = last_ && reason == Reason::none ? Phase::last : Phase::complete;
  if (last_ && reason != Reason::none) { last_reason_ = reason; }
}

void RailBatch::give_up(Reason reason) {
  if (phase_ == Phase::operations) {
    for (RailOutcome& outcome : outcomes_) { outcome.reason = reason; }
  }
  if (last_) { last_reason_ = reason; }
  phase_ = Phase::complete;
}

void RailBatch::finish() {
  {
    const std::lock_guard lock(mutex_);
    done_.store(true, std::memory_order_release);
  }
  finished_.notify_all();
  // What it holds goes with the call: it may hold, through its transfer, this batch.
  if (const std::function<void()> on_done = std::exchange(on_done_, nullptr)) { on_done(); }
}

}  // namespace moonpool
