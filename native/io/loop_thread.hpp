// A loop with a thread of its own, and questions to it from other threads.
#pragma once

#include <future>
#include <mutex>
#include <thread>

#include "io/event_loop.hpp"
#include "io/quiet_thread.hpp"

namespace moonpool {

class LoopThread {
 public:
  [[nodiscard]] EventLoop& loop() { return loop_; }
  void start() {
    thread_ = quiet_thread([this] { loop_.run(); });
  }
  [[nodiscard]] bool running() const { return thread_.joinable(); }
  // Runs last in the loop's thread; then the thread ends.
  void stop(EventLoop::Task last) {
    loop_.post(std::move(last));
    loop_.stop();
    thread_.join();
  }
  // In a forked child, which has the object and not the thread.
  void abandon() { thread_.detach(); }
  // What the function returns; in the loop's thread while that runs, else here.
  template <class Function>
  auto ask(Function function) {
    if (!running()) { return function(); }
    auto task = std::make_shared<std::packaged_task<decltype(function())()>>(std::move(function));
    auto result = task->get_future();
    loop_.post([task] { (*task)(); });
    return result.get();
  }

 private:
  EventLoop loop_;
  std::thread thread_;
};

}  // namespace moonpool
