#include "io/event_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "io/clock.hpp"

namespace moonpool {
namespace {

constexpr int idle_wait_ms = 1'000;

[[noreturn]] void refused(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

void control(const Descriptor& epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll.number(), operation, descriptor, &event) != 0) { refused("epoll_ctl"); }
}

std::uint64_t token_of(int descriptor, std::uint32_t serial) {
  return (static_cast<std::uint64_t>(serial) << 32U) | static_cast<std::uint32_t>(descriptor);
}

}  // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.open() || !wake_.open()) { refused("cannot make an event loop"); }
  watch(wake_.number(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    while (::read(wake_.number(), &count, sizeof count) > 0) {}
  });
}

void EventLoop::watch(int descriptor, std::uint32_t epoll_events, Handler handler) {
  const auto index = static_cast<std::size_t>(descriptor);
  if (watched_.size() <= index) { watched_.resize(index + 1); }
  watched_[index] = {++serial_, std::make_shared<Handler>(std::move(handler))};
  control(epoll_, EPOLL_CTL_ADD, descriptor, epoll_events, token_of(descriptor, serial_));
}

void EventLoop::change(int descriptor, std::uint32_t epoll_events) {
  const std::uint32_t serial = watched_[static_cast<std::size_t>(descriptor)].serial;
  control(epoll_, EPOLL_CTL_MOD, descriptor, epoll_events, token_of(descriptor, serial));
}

void EventLoop::forget(int descriptor) {
  watched_[static_cast<std::size_t>(descriptor)] = {};
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr);
}

void EventLoop::set_tick(std::uint64_t interval_ms, Task tick) {
  tick_ = std::move(tick);
  tick_interval_ms_ = interval_ms;
  tick_due_ms_ = steady_us() / 1'000 + interval_ms;
}

void EventLoop::set_background(std::function<bool()> work) { background_ = std::move(work); }

void EventLoop::post(Task task) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.number(), &one, sizeof one);
}

void EventLoop::stop() {
  stopping_.store(true);
  post([] {});
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) { task(); }
}

void EventLoop::dispatch(std::uint64_t token, std::uint32_t epoll_events) {
  const auto index = static_cast<std::size_t>(token & 0xffffffffU);
  // A descriptor closed and opened again within one round has another serial: its old events are not its own.
  if (index >= watched_.size() || watched_[index].serial != static_cast<std::uint32_t>(token >> 32U)) { return; }
  const std::shared_ptr<Handler> handler = watched_[index].handler;
  (*handler)(epoll_events);
}

int EventLoop::wait_ms(std::uint64_t now_ms) const {
  if (background_pending_) { return 0; }
  if (!tick_) { return idle_wait_ms; }
  return now_ms >= tick_due_ms_ ? 0 : static_cast<int>(tick_due_ms_ - now_ms);
}

int EventLoop::wait(std::span<epoll_event> events) {
  const int count_max = static_cast<int>(events.size());
  const std::uint64_t since_us = steady_us();
  const int limit_ms = wait_ms(since_us / 1'000);
  if (!spin_ || limit_ms == 0) { return ::epoll_wait(epoll_.number(), events.data(), count_max, limit_ms); }
  int count = 0;
  while (count == 0 && spin_->goes_on(since_us, steady_us())) {
    count = ::epoll_wait(epoll_.number(), events.data(), count_max, 0);
  }
  if (count == 0) { count = ::epoll_wait(epoll_.number(), events.data(), count_max, limit_ms); }
  spin_->ended(steady_us() - since_us);
  return count;
}

void EventLoop::run() {
  std::array<epoll_event, 64> events{};
  while (!stopping_.load()) {
    const int count = wait(events);
    for (int index = 0; index < count; ++index) {
      const epoll_event& event = events[static_cast<std::size_t>(index)];
      dispatch(event.data.u64, event.events);
    }
    run_posted();
    if (const std::uint64_t now_ms = steady_us() / 1'000; tick_ && now_ms >= tick_due_ms_) {
      tick_due_ms_ = now_ms + tick_interval_ms_;
      tick_();
    }
    background_pending_ = background_ && background_();
  }
  run_posted();
}

}  // namespace moonpool
