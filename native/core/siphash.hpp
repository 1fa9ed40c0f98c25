// SipHash-2-4 with 128-bit output (Aumasson and Bernstein, INDOCRYPT 2012).
#pragma once

#include <array>

#include "core/types.hpp"

namespace moonpool {

using SipKey = std::array<std::byte, 16>;
[[nodiscard]] Digest siphash128(const SipKey& key, ConstBytes bytes);
// Digest of (tenant, key): the tenant id is hashed as 8 little-endian bytes before the key.
[[nodiscard]] Digest key_digest(const SipKey& key, std::uint64_t tenant_id, std::string_view object_key);

}  // namespace moonpool
