// Who says what memory a slice may touch. The one contract between rail threads and the owners of memory.
#pragma once

#include "core/types.hpp"

namespace moonpool {

// Part of a region, as a peer names it. Nothing of it is believed before an authority said yes.
struct SliceRequest {
  Digest token;  // of the region or grant; unguessable
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool write = false;  // the peer writes into our memory; else it reads
};

// Whether [offset, offset + length) lies inside region_bytes, whatever the numbers are.
[[nodiscard]] constexpr bool lies_inside(const SliceRequest& slice, std::uint64_t region_bytes) {
  return slice.offset <= region_bytes && slice.length <= region_bytes - slice.offset;
}

// Rail threads call it, several at a time.
class RegionAuthority {
 public:
  RegionAuthority() = default;
  virtual ~RegionAuthority() = default;
  RegionAuthority(const RegionAuthority&) = delete;
  RegionAuthority& operator=(const RegionAuthority&) = delete;
  RegionAuthority(RegionAuthority&&) = delete;
  RegionAuthority& operator=(RegionAuthority&&) = delete;

  // Memory of the whole slice, kept from reuse until leave() is called for the same request. nullopt: `why` says so
  // (unknown_region, out_of_range, read_only, ...), and leave() is not to be called. Must not block.
  [[nodiscard]] virtual std::optional<MutableBytes> enter(const SliceRequest& slice, Reason& why) = 0;
  virtual void leave(const SliceRequest& slice) noexcept = 0;
};

}  // namespace moonpool
