// Small messages of peers, until the program takes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "io/clock.hpp"
#include "io/completion_queue.hpp"
#include "io/rail_session.hpp"

namespace moonpool {

struct TransferMessage {
  std::string from;  // the name that the sender's engine has
  std::string text;
};

// Any thread.
class TransferInbox final : public RailInbox {
 public:
  // Tickets of arrived messages go to `arrivals` while somebody watches.
  TransferInbox(std::size_t message_count_max, CompletionQueue& arrivals)
      : message_count_max_(message_count_max), arrivals_(arrivals) {}

  Reason deliver(const Principal& from, const Digest& identity, std::string message) override;
  // nullopt: none came until the deadline.
  [[nodiscard]] std::optional<TransferMessage> take(Deadline deadline);
  // Posts the ticket when a message is there, once.
  void watch(std::uint64_t ticket);
  // Whoever waits learns that nothing comes any more.
  void close();

 private:
  static constexpr std::size_t remembered_count = 4'096;

  std::size_t message_count_max_;
  CompletionQueue& arrivals_;
  std::mutex mutex_;
  std::condition_variable came_;
  bool closed_ = false;
  std::deque<TransferMessage> messages_;
  std::deque<Digest> order_;  // of what was delivered last, so that a repeated message shows once
  std::set<Digest> delivered_;
  std::vector<std::uint64_t> watchers_;
};

}  // namespace moonpool
