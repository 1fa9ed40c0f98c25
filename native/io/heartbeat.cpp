#include "io/heartbeat.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

#include "io/memory.hpp"
#include "io/quiet_thread.hpp"

namespace moonpool {

Heartbeat::Heartbeat(std::uint64_t interval_ms, std::function<void()> beat)
    : interval_ms_(interval_ms),
      beat_(std::move(beat)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      fork_count_(fork_count()) {
  if (!wake_.open()) { throw std::system_error(errno, std::generic_category(), "cannot make an event descriptor"); }
  thread_ = std::make_unique<std::thread>(quiet_thread([this] { run(); }));
}

Heartbeat::~Heartbeat() {
  if (fork_count_ != fork_count()) {
    (void)thread_.release();  // a forked child has the object and not the thread: there is nothing to join
    return;
  }
  stopping_.store(true);
  const std::uint64_t one = 1;
  (void)!::write(wake_.number(), &one, sizeof one);
  thread_->join();
}

void Heartbeat::run() {
  pollfd woken{wake_.number(), POLLIN, 0};
  while (!stopping_.load()) {
    if (::poll(&woken, 1, static_cast<int>(interval_ms_)) == 0) { beat_(); }
  }
}

}  // namespace moonpool
