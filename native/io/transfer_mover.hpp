// One thread for work that nobody waits for in a thread of his own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "io/memory.hpp"
#include "io/quiet_thread.hpp"

namespace moonpool {

// Starts with the first task. Whoever posts bounds how many there are.
class TransferMover {
 public:
  TransferMover() = default;
  // Tasks that have not begun are dropped. In a forked child there is no thread to end.
  ~TransferMover() {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      shared_->changed.notify_all();
    }
    if (!thread_.joinable()) { return; }
    if (fork_count_ != fork_count() || thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }
  TransferMover(const TransferMover&) = delete;
  TransferMover& operator=(const TransferMover&) = delete;
  TransferMover(TransferMover&&) = delete;
  TransferMover& operator=(TransferMover&&) = delete;

  void post(std::function<void()> task) {
    const std::lock_guard lock(shared_->mutex);
    shared_->tasks.push_back(std::move(task));
    shared_->changed.notify_one();
    if (!thread_.joinable()) {
      thread_ = quiet_thread([shared = shared_] { run(*shared); });
    }
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool stopping = false;
  };
  static void run(Shared& shared) {
    std::unique_lock lock(shared.mutex);
    while (!shared.stopping) {
      if (shared.tasks.empty()) {
        shared.changed.wait(lock);
        continue;
      }
      std::function<void()> task = std::move(shared.tasks.front());
      shared.tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds goes without the lock
      lock.lock();
    }
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::uint64_t fork_count_ = fork_count();
  std::thread thread_;
};

}  // namespace moonpool
