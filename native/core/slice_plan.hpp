// How long the slices of an operation are, and how much may be under way on a rail.
#pragma once

#include "core/types.hpp"

namespace moonpool {

struct SliceLimits {
  std::uint64_t slice_bytes_min = 64U << 10U;
  std::uint64_t slice_bytes_max = 1U << 20U;
  std::uint64_t slice_us = 2'000;        // a slice takes about so long on its rail
  std::uint64_t whole_bytes_max = 256U << 10U;  // a transfer of no more goes over one rail: spreading costs more
  std::uint64_t window_us = 10'000;      // so much is under way on a rail, within the bounds below
  std::uint64_t window_bytes_min = 512U << 10U;
  std::uint64_t window_bytes_max = 16U << 20U;
  std::uint64_t window_count_max = 256;  // slices
  std::uint64_t quiet_us = 100'000;      // so long after latency-critical work, bulk work keeps its windows small
};

// The length of the next slice of an operation of which `remaining` bytes are left, on a rail of this bandwidth: parts
// of one length rather than a short last one.
[[nodiscard]] std::uint64_t slice_length(const SliceLimits& limits, std::uint64_t remaining,
                                         std::uint64_t bytes_per_second);
// Bytes that may be under way on a rail of this bandwidth, in parts of `share` quarters.
[[nodiscard]] std::uint64_t window_bytes(const SliceLimits& limits, std::uint64_t bytes_per_second,
                                         std::uint32_t quarters);

}  // namespace moonpool
