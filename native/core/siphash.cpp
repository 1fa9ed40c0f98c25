#include "core/siphash.hpp"

#include <bit>
#include <cstring>

namespace moonpool {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie");

std::uint64_t load_word(ConstBytes bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

// The four words of state and the rounds of the paper, section 2.
class SipState {
 public:
  explicit SipState(const SipKey& key) {
    const ConstBytes bytes(key);
    const std::uint64_t low = load_word(bytes.first(8));
    const std::uint64_t high = load_word(bytes.last(8));
    v0_ = 0x736f6d6570736575ULL ^ low;
    v1_ = 0x646f72616e646f6dULL ^ high ^ 0xee;  // 0xee: the 128-bit variant
    v2_ = 0x6c7967656e657261ULL ^ low;
    v3_ = 0x7465646279746573ULL ^ high;
  }

  void absorb(std::uint64_t word) {
    v3_ ^= word;
    round();
    round();
    v0_ ^= word;
  }

  // bytes are the last of the input, which is byte_count long as a whole.
  Digest finish(ConstBytes bytes, std::uint64_t byte_count) {
    while (bytes.size() >= 8) {
      absorb(load_word(bytes));
      bytes = bytes.subspan(8);
    }
    std::uint64_t last = byte_count << 56;
    for (std::size_t i = 0; i < bytes.size(); ++i) last |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    absorb(last);
    v2_ ^= 0xee;
    const std::uint64_t low = squeeze();
    v1_ ^= 0xdd;
    return Digest{low, squeeze()};
  }

 private:
  void round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t squeeze() {
    for (int i = 0; i < 4; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  std::uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace

Digest siphash128(const SipKey& key, ConstBytes bytes) { return SipState(key).finish(bytes, bytes.size()); }

Digest key_digest(const SipKey& key, std::uint64_t tenant_id, std::string_view object_key) {
  SipState state(key);
  state.absorb(tenant_id);
  return state.finish(std::as_bytes(std::span(object_key)), sizeof tenant_id + object_key.size());
}

}  // namespace moonpool
