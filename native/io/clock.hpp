// Time, as the io room sees it.
#pragma once

#include <cstdint>
#include <ctime>

namespace moonpool {

[[nodiscard]] inline std::uint64_t clock_us(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000;
}

// Boot-time clock: it goes on while the machine sleeps, so that an expiry means what it says.
[[nodiscard]] inline std::uint64_t boot_ms() { return clock_us(CLOCK_BOOTTIME) / 1'000; }
[[nodiscard]] inline std::uint64_t steady_us() { return clock_us(CLOCK_MONOTONIC); }

// When a call has to be back.
class Deadline {
 public:
  [[nodiscard]] static Deadline after_ms(std::uint64_t milliseconds) {
    constexpr std::uint64_t year_ms = 366ULL * 24 * 3'600 * 1'000;
    return Deadline(steady_us() + (milliseconds < year_ms ? milliseconds : year_ms) * 1'000);
  }
  [[nodiscard]] bool passed() const { return steady_us() >= at_us_; }
  [[nodiscard]] std::uint64_t remaining_us() const {
    const std::uint64_t now = steady_us();
    return now >= at_us_ ? 0 : at_us_ - now;
  }
  [[nodiscard]] std::uint64_t at_us() const { return at_us_; }
  [[nodiscard]] Deadline sooner(Deadline other) const { return at_us_ < other.at_us_ ? *this : other; }

 private:
  explicit Deadline(std::uint64_t at_us) : at_us_(at_us) {}
  std::uint64_t at_us_;
};

}  // namespace moonpool
