#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/siphash.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

namespace moonpool {
namespace {

// Key 00 01 … 0f, input 00 01 … n-1, as in the authors' vectors_sip128; cross-checked with `openssl mac SIPHASH`.
struct Vector {
  std::size_t input_bytes;
  const char* digest;
};
constexpr Vector vectors[] = {
    {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
    {2, "8177228da4a45dc7fca38bdef60affe4"},  {3, "9c70b60c5267a94e5f33b6b02985ed51"},
    {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},  {8, "3b62a9ba6258f5610f83e264f31497b4"},
    {9, "264499060ad9baabc47f8b02bb6d71ed"},  {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
    {16, "6ee2a4ca67b054bbfd3315bf85230577"}, {63, "5150d1772f50834a503e069a973fbd7c"},
};

SipKey counting_key() {
  SipKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

std::vector<std::byte> counting_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

std::string hex(const Digest& digest) {
  std::byte bytes[16];
  std::memcpy(bytes, &digest.low, 8);
  std::memcpy(bytes + 8, &digest.high, 8);
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
  }
  return text;
}

TEST_CASE("matches the reference vectors") {
  for (const auto& [input_bytes, digest] : vectors) {
    CHECK(hex(siphash128(counting_key(), counting_bytes(input_bytes))) == std::string(digest));
  }
}

TEST_CASE("key digest is that of tenant and key together") {
  const std::string_view key = "prompt/0001";
  std::vector<std::byte> joined = counting_bytes(8);  // tenant 0x0706050403020100
  joined.insert(joined.end(), std::as_bytes(std::span(key)).begin(), std::as_bytes(std::span(key)).end());
  CHECK(hex(key_digest(counting_key(), 0x0706050403020100ULL, key)) == hex(siphash128(counting_key(), joined)));
  CHECK_MESSAGE(key_digest(counting_key(), 1, key) != key_digest(counting_key(), 2, key), "tenants must not meet");
}

}  // namespace
}  // namespace moonpool
