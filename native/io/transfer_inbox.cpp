#include "io/transfer_inbox.hpp"

namespace moonpool {

Reason TransferInbox::deliver(const Principal& from, const Digest& identity, std::string message) {
  const std::lock_guard lock(mutex_);
  if (closed_) { return Reason::unavailable; }
  if (delivered_.contains(identity)) { return Reason::none; }
  if (messages_.size() >= message_count_max_) { return Reason::connection_limit; }
  messages_.push_back({from.name, std::move(message)});
  delivered_.insert(identity);
  order_.push_back(identity);
  if (order_.size() > remembered_count) {
    delivered_.erase(order_.front());
    order_.pop_front();
  }
  came_.notify_one();
  for (const std::uint64_t ticket : watchers_) { arrivals_.post(ticket); }
  watchers_.clear();
  return Reason::none;
}

std::optional<TransferMessage> TransferInbox::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (messages_.empty() && !closed_) {
    const std::uint64_t remaining_us = deadline.remaining_us();
    if (remaining_us == 0) { return std::nullopt; }
    came_.wait_for(lock, std::chrono::microseconds(remaining_us));
  }
  if (messages_.empty()) { return std::nullopt; }
  TransferMessage message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void TransferInbox::watch(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (!messages_.empty() || closed_) {
    arrivals_.post(ticket);
  } else {
    watchers_.push_back(ticket);
  }
}

void TransferInbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  came_.notify_all();
  for (const std::uint64_t ticket : watchers_) { arrivals_.post(ticket); }
  watchers_.clear();
}

}  // namespace moonpool
