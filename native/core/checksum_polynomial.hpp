// Arithmetic of CRC32C: polynomials over GF(2) modulo the Castagnoli polynomial, bits reflected. All constexpr.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moonpool::crc {

inline constexpr std::uint32_t polynomial = 0x82f63b78;
inline constexpr std::uint32_t one = 0x80000000;  // the polynomial 1: bit 31 is the coefficient of x^0

using ByteTable = std::array<std::uint32_t, 256>;

// a · x
constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? polynomial : 0); }

// a · b
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = one; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

// x^(8 · 2^k) for k = 0 … 63: what a byte count's bits multiply by.
constexpr std::array<std::uint32_t, 64> make_byte_powers() {
  std::array<std::uint32_t, 64> powers{};
  std::uint32_t power = one >> 8;
  for (auto& entry : powers) {
    entry = power;
    power = multiply(power, power);
  }
  return powers;
}
inline constexpr std::array<std::uint32_t, 64> byte_powers = make_byte_powers();

// x^(8 · byte_count): multiplying a CRC by it appends byte_count zero bytes.
constexpr std::uint32_t shift_by(std::uint64_t byte_count) {
  std::uint32_t product = one;
  for (std::size_t k = 0; byte_count != 0; ++k, byte_count >>= 1) {
    if ((byte_count & 1) != 0) product = multiply(byte_powers[k], product);
  }
  return product;
}

// Multiplication by x^(8 · byte_count) as four look-ups, one per byte of the CRC.
class ShiftTable {
 public:
  constexpr explicit ShiftTable(std::uint64_t byte_count) {
    const std::uint32_t shift = shift_by(byte_count);
    for (std::size_t lane = 0; lane < 4; ++lane) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) { lanes_[lane][byte] = multiply(shift, byte << (8 * lane)); }
    }
  }
  [[nodiscard]] std::uint32_t apply(std::uint32_t crc) const {
    return lanes_[0][crc & 0xff] ^ lanes_[1][(crc >> 8) & 0xff] ^ lanes_[2][(crc >> 16) & 0xff] ^ lanes_[3][crc >> 24];
  }

 private:
  std::array<ByteTable, 4> lanes_{};
};

// Slicing by eight (Kounavis and Berry, ISCC 2005): tables[k][b] is the CRC of byte b followed by k zero bytes.
constexpr std::array<ByteTable, 8> make_slices() {
  std::array<ByteTable, 8> slices{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    slices[0][byte] = crc;
  }
  for (std::size_t k = 1; k < slices.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = slices[k - 1][byte];
      slices[k][byte] = (before >> 8) ^ slices[0][before & 0xff];
    }
  }
  return slices;
}

}  // namespace moonpool::crc
