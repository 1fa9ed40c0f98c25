// Remembers that a peer did not answer, so that the next calls do not wait for it too. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moonpool {

class Breaker {
 public:
  static constexpr std::uint64_t pause_first_us = 50'000;
  static constexpr std::uint64_t pause_last_us = 1'000'000;

  // Open: nobody should wait for the peer now.
  [[nodiscard]] bool open(std::uint64_t now_us) const { return now_us < closed_from_us_; }
  void failed(std::uint64_t now_us) {
    pause_us_ = pause_us_ == 0 ? pause_first_us : std::min(pause_last_us, pause_us_ * 2);
    closed_from_us_ = now_us + pause_us_;
  }
  void answered() { pause_us_ = closed_from_us_ = 0; }

 private:
  std::uint64_t pause_us_ = 0;
  std::uint64_t closed_from_us_ = 0;
};

}  // namespace moonpool
