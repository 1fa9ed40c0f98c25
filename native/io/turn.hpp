// A lock for which nobody waits past a deadline.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "io/clock.hpp"

namespace moonpool {

class Turn {
 public:
  // Held by one thread from a successful take() on until it goes.
  class Guard {
   public:
    Guard() = default;
    explicit Guard(Turn* turn) : turn_(turn) {}
    ~Guard() { give(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    Guard(Guard&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      if (this != &other) {
        give();
        turn_ = std::exchange(other.turn_, nullptr);
      }
      return *this;
    }
    explicit operator bool() const { return turn_ != nullptr; }
    void give() {
      if (turn_ != nullptr) { std::exchange(turn_, nullptr)->free(); }
    }

   private:
    Turn* turn_ = nullptr;
  };

  [[nodiscard]] Guard take(Deadline deadline) {
    std::unique_lock lock(mutex_);
    while (taken_) {
      const std::uint64_t remaining_us = deadline.remaining_us();
      if (remaining_us == 0) { return Guard{}; }
      freed_.wait_for(lock, std::chrono::microseconds(remaining_us));
    }
    taken_ = true;
    return Guard(this);
  }
  [[nodiscard]] Guard take_if_free() {
    const std::lock_guard lock(mutex_);
    if (taken_) { return Guard{}; }
    taken_ = true;
    return Guard(this);
  }

 private:
  void free() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = false;
    }
    freed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable freed_;
  bool taken_ = false;
};

}  // namespace moonpool
