// One thread's loop over epoll: descriptors, posted tasks, one periodic tick, background work.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "io/descriptor.hpp"
#include "io/spin.hpp"

namespace moonpool {

class EventLoop {
 public:
  using Handler = std::function<void(std::uint32_t epoll_events)>;
  using Task = std::function<void()>;

  EventLoop();  // throws std::system_error
  // The loop's own thread only. A handler may forget its own descriptor and any other.
  void watch(int descriptor, std::uint32_t epoll_events, Handler handler);
  void change(int descriptor, std::uint32_t epoll_events);
  void forget(int descriptor);
  // Called about every interval_ms.
  void set_tick(std::uint64_t interval_ms, Task tick);
  // Called between rounds as long as it says that there is more to do; each call should take at most 1 ms.
  void set_background(std::function<bool()> work);
  // Looks again for up to so long before it sleeps, where that has paid. Before run().
  void set_spin(std::uint64_t us_max) { spin_.emplace(us_max); }
  // Any thread.
  void post(Task task);
  void stop();
  void run();

 private:
  struct Watched {
    std::uint32_t serial = 0;
    std::shared_ptr<Handler> handler;
  };
  int wait_ms(std::uint64_t now_ms) const;
  int wait(std::span<epoll_event> events);
  void run_posted();
  void dispatch(std::uint64_t token, std::uint32_t epoll_events);

  Descriptor epoll_;
  Descriptor wake_;
  std::vector<Watched> watched_;  // by descriptor number
  std::uint32_t serial_ = 0;
  Task tick_;
  std::uint64_t tick_interval_ms_ = 0;
  std::uint64_t tick_due_ms_ = 0;
  std::function<bool()> background_;
  bool background_pending_ = false;
  std::optional<Spin> spin_;
  std::atomic<bool> stopping_{false};
  std::mutex posted_mutex_;
  std::vector<Task> posted_;
};

}  // namespace moonpool
