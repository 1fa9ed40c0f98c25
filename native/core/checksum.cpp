#include "core/checksum.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/checksum_hardware.hpp"
#include "core/checksum_polynomial.hpp"

namespace moonpool {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie");

constexpr std::array<crc::ByteTable, 8> slices = crc::make_slices();

std::uint32_t update_portable(std::uint32_t state, ConstBytes bytes) {
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    word ^= state;
    state = 0;
    for (std::size_t k = 0; k < slices.size(); ++k) state ^= slices[7 - k][(word >> (8 * k)) & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ slices[0][(state ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
  }
  return state;
}

// Sums what was written, piece by piece while it is in the first-level cache.
std::uint32_t update_copy_portable(std::uint32_t state, MutableBytes target, ConstBytes source) {
  constexpr std::size_t piece_bytes_max = 4096;
  while (!source.empty()) {
    const std::size_t piece_bytes = std::min(piece_bytes_max, source.size());
    std::memcpy(target.data(), source.data(), piece_bytes);
    state = update_portable(state, target.first(piece_bytes));
    target = target.subspan(piece_bytes);
    source = source.subspan(piece_bytes);
  }
  return state;
}

}  // namespace

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t crc) {
  static const bool hardware = crc::hardware_available();
  return hardware ? ~crc::update_hardware(~crc, bytes) : crc32c_portable(bytes, crc);
}

std::uint32_t copy_crc32c(MutableBytes target, ConstBytes source, std::uint32_t crc) {
  static const bool hardware = crc::hardware_available();
  target = target.first(source.size());
  return hardware ? ~crc::update_copy_hardware(~crc, target, source) : ~update_copy_portable(~crc, target, source);
}

std::uint32_t crc32c_portable(ConstBytes bytes, std::uint32_t crc) { return ~update_portable(~crc, bytes); }

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return crc::multiply(crc::shift_by(second_bytes), first) ^ second;
}

}  // namespace moonpool
