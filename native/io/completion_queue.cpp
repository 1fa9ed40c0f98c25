#include "io/completion_queue.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

namespace moonpool {

CompletionQueue::CompletionQueue() : ready_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!ready_.open()) { throw std::system_error(errno, std::generic_category(), "cannot make a completion queue"); }
}

void CompletionQueue::post(std::uint64_t ticket) noexcept {
  const std::lock_guard lock(mutex_);
  tickets_.push_back(ticket);
  if (tickets_.size() == 1) {
    const std::uint64_t one = 1;
    (void)!::write(ready_.number(), &one, sizeof one);
  }
}

std::vector<std::uint64_t> CompletionQueue::take() {
  // Before the tickets: one that is posted in between wakes once too often, never too seldom.
  std::uint64_t count = 0;
  (void)!::read(ready_.number(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> taken;
  taken.swap(tickets_);
  return taken;
}

}  // namespace moonpool
