#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/checksum.hpp"
#include "core/checksum_hardware.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "tests/seed.hpp"

namespace moonpool {
namespace {

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One bit at a time, straight from the definition.
std::uint32_t crc32c_by_bits(ConstBytes bytes) {
  std::uint32_t state = 0xffffffff;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~state;
}

// Lengths on both sides of every stream length of the hardware path, singly and summed.
std::vector<std::size_t> telling_lengths() {
  std::vector<std::size_t> lengths{0, 1, 7, 8, 9, 63, 64, 100};
  for (const std::size_t stream : {256UL, 4096UL, 16384UL, 65536UL}) {
    for (const std::size_t length : {3 * stream - 1, 3 * stream, 3 * stream + 13, 6 * stream + 8})
      lengths.push_back(length);
  }
  lengths.push_back(3 * (65536 + 16384 + 4096 + 256) + 767);
  return lengths;
}

TEST_CASE("gives the published values") {
  CHECK(crc32c(bytes_of("123456789")) == 0xe3069283U);
  CHECK(crc32c({}) == 0U);
  // RFC 3720, B.4
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  CHECK(crc32c(zeros) == 0x8a9136aaU);
  CHECK(crc32c(ones) == 0x62a8ab43U);
}

TEST_CASE("all paths agree at every length and alignment") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  std::mt19937_64 random(test::seed());
  for (const std::size_t length : telling_lengths()) {
    for (const std::size_t skip : {0UL, 1UL, 5UL}) {
      const auto source = random_bytes(length + skip, random);
      const ConstBytes bytes = ConstBytes(source).subspan(skip);
      const std::uint32_t wanted = crc32c_by_bits(bytes);
      CHECK_MESSAGE((crc32c(bytes)) == (wanted), "crc32c");
      CHECK_MESSAGE((crc32c_portable(bytes)) == (wanted), "crc32c_portable");
      std::vector<std::byte> target(length + 32, std::byte{0x5a});
      CHECK_MESSAGE((copy_crc32c(MutableBytes(target).subspan(3, length), bytes)) == (wanted), "copy_crc32c");
      CHECK_MESSAGE(std::equal(bytes.begin(), bytes.end(), target.begin() + 3), "the copy is not the source");
      const auto untouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
      CHECK_MESSAGE(std::all_of(target.begin(), target.begin() + 3, untouched), "wrote before the target");
      CHECK_MESSAGE(std::all_of(target.begin() + 3 + static_cast<std::ptrdiff_t>(length), target.end(), untouched),
                    "wrote past the target");
    }
  }
}

TEST_CASE("continues from the bytes before and combines") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  std::mt19937_64 random(test::seed());
  for (int turn = 0; turn < 200; ++turn) {
    const auto whole = random_bytes(random() % 20'000, random);
    const std::size_t cut = whole.empty() ? 0 : random() % whole.size();
    const ConstBytes first = ConstBytes(whole).first(cut), second = ConstBytes(whole).subspan(cut);
    const std::uint32_t wanted = crc32c(whole);
    CHECK_MESSAGE((crc32c(second, crc32c(first))) == (wanted), "crc32c continued");
    CHECK_MESSAGE((crc32c_portable(second, crc32c_portable(first))) == (wanted), "crc32c_portable continued");
    CHECK_MESSAGE((crc32c_combine(crc32c(first), crc32c(second), second.size())) == (wanted), "combined");
    std::vector<std::byte> target(second.size());
    CHECK_MESSAGE((copy_crc32c(target, second, crc32c(first))) == (wanted), "copy_crc32c continued");
  }
}

TEST_CASE("combines with lengths that no memory holds") {
  // Appending zero bytes in two steps must equal one step, also past 2^32.
  const std::uint32_t start = 0x12345678;
  const std::uint64_t huge = (1ULL << 40) + 12345;
  const std::uint32_t zeros_huge = crc32c_combine(crc32c_combine(0, 0, 0), 0, huge);
  CHECK(zeros_huge == 0U);
  const std::uint32_t at_once = crc32c_combine(start, 0, huge + 77);
  CHECK(crc32c_combine(crc32c_combine(start, 0, huge), 0, 77) == at_once);
}

}  // namespace
}  // namespace moonpool
