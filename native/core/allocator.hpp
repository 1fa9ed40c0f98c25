// Space of one arena. Pure: it hands out offsets and never touches the memory they name.
#pragma once

#include "core/types.hpp"

namespace moonpool {

// Two-level segregated fit (Masmano et al., ECRTS 2004): O(1) allocate and free, immediate coalescing.
// Sizes and offsets are multiples of allocation_align_bytes.
class Allocator {
 public:
  explicit Allocator(std::uint64_t capacity_bytes);
  // The offset of a free range of at least size_bytes, or nullopt when no single range is large enough.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t size_bytes);
  // offset must come from allocate() and not have been freed.
  void free(std::uint64_t offset);
  [[nodiscard]] std::uint64_t capacity_bytes() const;
  [[nodiscard]] std::uint64_t used_bytes() const;
  [[nodiscard]] std::uint64_t largest_free_bytes() const;
  // Empty when the free lists, the bitmaps and the neighbours agree, else what is wrong.
  [[nodiscard]] std::string check_integrity() const;
};

}  // namespace moonpool
