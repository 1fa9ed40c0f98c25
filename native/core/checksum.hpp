// CRC32C (Castagnoli), alone and fused with a copy.
#pragma once

#include "core/types.hpp"

namespace moonpool {

// crc is that of the bytes before; 0 to begin.
[[nodiscard]] std::uint32_t crc32c(ConstBytes bytes, std::uint32_t crc = 0);
// Copies source into target (same size, not overlapping) and returns the CRC32C of what was written, in one
// pass over three interleaved streams. No non-temporal stores: they were four times slower here.
[[nodiscard]] std::uint32_t copy_crc32c(MutableBytes target, ConstBytes source, std::uint32_t crc = 0);
// Force the portable path (tests).
[[nodiscard]] std::uint32_t crc32c_portable(ConstBytes bytes, std::uint32_t crc = 0);
// CRC32C of the concatenation of two byte strings from their CRCs and the second one's length.
[[nodiscard]] std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace moonpool
