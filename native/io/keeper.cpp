#include "io/keeper.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "io/quiet_thread.hpp"

namespace moonpool {
namespace {

// Small steps: whoever else changes this process's memory map waits no longer than one of them takes.
constexpr std::uint64_t step_bytes = 1U << 20U;
constexpr int lowest_priority = 19;

}  // namespace

Keeper::Keeper(const Descriptor& peer, std::function<void()> peer_gone)
    : peer_(peer.number()),
      peer_gone_(std::move(peer_gone)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      fork_count_(fork_count()) {
  if (!wake_.open()) { throw std::system_error(errno, std::generic_category(), "cannot make an event descriptor"); }
  thread_ = std::make_unique<std::thread>(quiet_thread([this] { run(); }));
}

Keeper::~Keeper() {
  if (fork_count_ != fork_count()) {
    (void)thread_.release();  // a forked child has the object and not the thread: there is nothing to join
    return;
  }
  stopping_.store(true);
  wake();
  thread_->join();
}

void Keeper::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.number(), &one, sizeof one);
}

void Keeper::populate(const std::shared_ptr<Mapping>& mapping) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(mapping);
  }
  wake();
}

void Keeper::run() {
  ::setpriority(PRIO_PROCESS, 0, lowest_priority);  // of this thread alone, on Linux: the engine comes first
  while (!stopping_.load()) {
    populate_next();
    wait();
  }
}

void Keeper::populate_next() {
  std::weak_ptr<Mapping> next;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) { return; }
    next = waiting_.front();
    waiting_.erase(waiting_.begin());
  }
  for (std::uint64_t offset = 0; !stopping_.load(); offset += step_bytes) {
    const std::shared_ptr<Mapping> mapping = next.lock();  // dropped between steps: nobody is kept from unmapping
    if (!mapping || offset >= mapping->byte_count()) { break; }
    if (!mapping->populate(offset, std::min(step_bytes, mapping->byte_count() - offset))) { break; }
  }
  wake();  // perhaps there is another
}

void Keeper::wait() {
  std::array<pollfd, 2> watched = {pollfd{wake_.number(), POLLIN, 0}, pollfd{peer_is_gone_ ? -1 : peer_, POLLRDHUP, 0}};
  if (::poll(watched.data(), watched.size(), -1) < 0) { return; }
  std::uint64_t count = 0;
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): no lock is held here, and the descriptor never blocks
  (void)!::read(wake_.number(), &count, sizeof count);
  if (watched[1].revents != 0) {
    peer_is_gone_ = true;
    peer_gone_();
  }
}

}  // namespace moonpool
