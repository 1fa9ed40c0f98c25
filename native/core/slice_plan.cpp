#include "core/slice_plan.hpp"

#include <algorithm>

namespace moonpool {

namespace {

constexpr std::uint64_t page_bytes = 4096;

std::uint64_t moved_bytes(std::uint64_t bytes_per_second, std::uint64_t during_us) {
  return bytes_per_second / 1'000 * during_us / 1'000;
}

}  // namespace

std::uint64_t slice_length(const SliceLimits& limits, std::uint64_t remaining, std::uint64_t bytes_per_second) {
  const std::uint64_t aim =
      std::clamp(moved_bytes(bytes_per_second, limits.slice_us), limits.slice_bytes_min, limits.slice_bytes_max);
  if (remaining <= aim + aim / 4) { return remaining; }
  const std::uint64_t parts = (remaining + aim - 1) / aim;
  const std::uint64_t part = (remaining + parts - 1) / parts;
  return std::min(remaining, (part + page_bytes - 1) / page_bytes * page_bytes);
}

std::uint64_t window_bytes(const SliceLimits& limits, std::uint64_t bytes_per_second, std::uint32_t quarters) {
  const std::uint64_t moved = moved_bytes(bytes_per_second, limits.window_us) / 4 * quarters;
  return std::clamp(moved, limits.window_bytes_min, limits.window_bytes_max);
}

}  // namespace moonpool
