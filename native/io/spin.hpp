// How long it pays to look again before sleeping.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moonpool {

// A sleeper costs tens of microseconds to wake. Who was served soon after the last few times spins that long and more;
// who waits for something slow sleeps at once. One thread's.
class Spin {
 public:
  explicit Spin(std::uint64_t us_max) : us_max_(us_max) {}
  // Whether to look again, having found nothing since idle_since_us.
  [[nodiscard]] bool goes_on(std::uint64_t idle_since_us, std::uint64_t now_us) const {
    return now_us < idle_since_us + (expected_us_ <= us_max_ ? us_max_ : us_min);
  }
  // Something came after so long.
  void ended(std::uint64_t waited_us) {
    const std::uint64_t counted_us = std::min(waited_us, 16 * us_max_);
    expected_us_ = (3 * expected_us_ + counted_us) / 4;
  }

 private:
  static constexpr std::uint64_t us_min = 5;
  std::uint64_t us_max_;
  std::uint64_t expected_us_ = 0;
};

}  // namespace moonpool
