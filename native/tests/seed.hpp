// The seed of a test's random choices.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace moonpool::test {

// MOONPOOL_SEED replays a failure; otherwise every run draws its own. Tests print it with INFO.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("MOONPOOL_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  }();
  return value;
}

}  // namespace moonpool::test
