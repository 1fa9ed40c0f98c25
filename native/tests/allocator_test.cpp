#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/allocator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

namespace moonpool {

TEST_CASE("an empty arena is one free range") {
  const Allocator allocator(4096);
  CHECK(allocator.capacity_bytes() == 4096);
  CHECK(allocator.largest_free_bytes() == 4096);
  CHECK(allocator.used_bytes() == 0);
  CHECK(allocator.check_integrity().empty());
}

TEST_CASE("capacity is cut to whole granules, and an arena without any gives nothing") {
  CHECK(Allocator(4096 + 63).capacity_bytes() == 4096);
  Allocator nothing(63);
  CHECK_FALSE(nothing.allocate(1).has_value());
  CHECK(nothing.check_integrity().empty());
}

TEST_CASE("sizes past the capacity, also absurd ones, are refused") {
  Allocator allocator(4096);
  CHECK_FALSE(allocator.allocate(4097).has_value());
  CHECK_FALSE(allocator.allocate(std::numeric_limits<std::uint64_t>::max()).has_value());
  CHECK(allocator.allocate(4096).has_value());
  CHECK_FALSE(allocator.allocate(1).has_value());
}

TEST_CASE("freed neighbours join, in whichever order they are freed") {
  for (int order = 0; order < 6; ++order) {
    Allocator allocator(3 * 64);
    std::vector<std::uint64_t> offsets;
    for (int count = 0; count < 3; ++count) offsets.push_back(allocator.allocate(64).value());
    std::vector<int> turn{0, 1, 2};
    for (int step = 0; step < order; ++step) std::next_permutation(turn.begin(), turn.end());
    for (int index : turn) allocator.free(offsets[static_cast<std::size_t>(index)]);
    CHECK(allocator.largest_free_bytes() == 3 * 64);
    CHECK(allocator.check_integrity().empty());
  }
}

TEST_CASE("an arena of many gibibytes works like a small one") {
  Allocator allocator(std::uint64_t{1} << 46);
  const std::uint64_t first = allocator.allocate(std::uint64_t{1} << 45).value();
  const std::uint64_t second = allocator.allocate(std::uint64_t{1} << 45).value();
  CHECK(first != second);
  CHECK_FALSE(allocator.allocate(64).has_value());
  allocator.free(first);
  CHECK(allocator.allocate(64).has_value());
  CHECK(allocator.check_integrity().empty());
}

TEST_CASE("random requests never overlap and leave nothing behind") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Allocator allocator(1 << 20);
  std::map<std::uint64_t, std::uint64_t> used;  // offset → bytes
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 5 < 3) {
      const std::uint64_t size_bytes = random() % (1ULL << (random() % 17)) + 1;
      const std::optional<std::uint64_t> offset = allocator.allocate(size_bytes);
      if (!offset) continue;
      const auto after = used.lower_bound(*offset);
      REQUIRE((after == used.end() || *offset + size_bytes <= after->first));
      REQUIRE((after == used.begin() || std::prev(after)->first + std::prev(after)->second <= *offset));
      used[*offset] = size_bytes;
    } else if (!used.empty()) {
      auto victim = used.lower_bound(random() % (1 << 20));
      if (victim == used.end()) victim = used.begin();
      allocator.free(victim->first);
      used.erase(victim);
    }
    if (step % 100 == 0) REQUIRE(allocator.check_integrity() == "");
  }
  for (const auto& [offset, size_bytes] : used) allocator.free(offset);
  CHECK(allocator.largest_free_bytes() == 1 << 20);
  CHECK(allocator.used_bytes() == 0);
  CHECK(allocator.check_integrity() == "");
}

}  // namespace moonpool
