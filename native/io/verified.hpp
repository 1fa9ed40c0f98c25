// Which residencies this process has checked once, so that a view of them is not read twice.
#pragma once

#include <deque>
#include <mutex>
#include <unordered_set>

#include "core/types.hpp"

namespace moonpool {

// Of one incarnation of a node: elsewhere the same generation names other bytes. Any thread may call anything.
class Verified {
 public:
  [[nodiscard]] bool contains(Generation generation) const {
    const std::lock_guard lock(mutex_);
    return known_.contains(generation);
  }
  void add(Generation generation) {
    const std::lock_guard lock(mutex_);
    if (known_.insert(generation).second) { order_.push_back(generation); }
    if (order_.size() > count_max) {
      known_.erase(order_.front());
      order_.pop_front();
    }
  }

 private:
  static constexpr std::size_t count_max = 65'536;

  mutable std::mutex mutex_;
  std::unordered_set<Generation> known_;
  std::deque<Generation> order_;
};

}  // namespace moonpool
