// What every server of ours has in common: a service in the thread of a loop, and answers to other threads.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "io/frame_server.hpp"
#include "io/loop_thread.hpp"
#include "io/memory.hpp"

namespace moonpool {

// Any thread may call anything. Before the service runs, its answers are empty.
template <class Served>
class ServerShell {
 public:
  ServerShell(const ServerShell&) = delete;
  ServerShell& operator=(const ServerShell&) = delete;
  ServerShell(ServerShell&&) = delete;
  ServerShell& operator=(ServerShell&&) = delete;

  [[nodiscard]] std::string status() {
    const std::lock_guard lock(mutex_);
    constexpr std::size_t whole = std::numeric_limits<std::size_t>::max();
    return service_ ? thread_.ask([this] { return service_->status(whole); }) : "{}";
  }
  [[nodiscard]] CounterMap counters() {
    const std::lock_guard lock(mutex_);
    return service_ ? thread_.ask([this] { return service_->counters(); }) : CounterMap{};
  }
  [[nodiscard]] std::string check_integrity() {
    const std::lock_guard lock(mutex_);
    return service_ ? thread_.ask([this] { return service_->check_integrity(); }) : std::string{};
  }

 protected:
  ServerShell() = default;
  ~ServerShell() = default;

  [[nodiscard]] std::mutex& mutex() { return mutex_; }  // of start and stop, and of all that they change
  [[nodiscard]] EventLoop& loop() { return thread_.loop(); }
  [[nodiscard]] Served& service() { return *service_; }
  [[nodiscard]] bool started() const { return service_ != nullptr; }
  [[nodiscard]] bool running() const { return thread_.running(); }
  [[nodiscard]] bool of_this_process() const { return fork_count_ == fork_count(); }
  void run(std::unique_ptr<Served> service) {
    service->start();
    service_ = std::move(service);
    thread_.start();
  }
  void end() {
    thread_.stop([this] { service_->stop(); });
  }
  // What a server destroys first: the service refers to members of the server, which go before those of its base.
  void discard() { service_.reset(); }
  // In a forked child: the thread is its parent's, and what it was changing may be half changed. It stays as it is.
  void abandon() {
    if (thread_.running()) { thread_.abandon(); }
    (void)service_.release();
  }

 private:
  std::mutex mutex_;
  std::uint64_t fork_count_ = fork_count();
  LoopThread thread_;
  std::unique_ptr<Served> service_;
};

}  // namespace moonpool
