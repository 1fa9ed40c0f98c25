// Space of one arena. Pure: it hands out offsets and never touches the memory they name.
#pragma once

#include <array>

#include "core/slot_pool.hpp"
#include "core/types.hpp"

namespace moonpool {

// Two-level segregated fit (Masmano et al., ECRTS 2004): O(1) allocate and free, immediate coalescing.
// Sizes and offsets are multiples of allocation_align_bytes.
class Allocator {
 public:
  explicit Allocator(std::uint64_t capacity_bytes);
  // The offset of a free range of at least size_bytes, or nullopt when no single range is large enough.
  // (Of the ranges in the request's own size class only the first 256 are looked at.)
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t size_bytes);
  // offset must come from allocate() and not have been freed.
  void free(std::uint64_t offset);
  [[nodiscard]] std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }
  [[nodiscard]] std::uint64_t largest_free_bytes() const;
  // Empty when the free lists, the bitmaps and the neighbours agree, else what is wrong.
  [[nodiscard]] std::string check_integrity() const;

 private:
  // Lengths are counted in granules of allocation_align_bytes. Below first_class_granules each length has a class
  // of its own; above, each power of two is cut into second_level_count classes.
  static constexpr unsigned second_level_bits = 5;
  static constexpr unsigned second_level_count = 1U << second_level_bits;
  static constexpr unsigned first_level_count = 64 - second_level_bits;

  struct Range {
    std::uint64_t start = 0;  // granules
    std::uint64_t length = 0;
    Slot before = no_slot, after = no_slot;            // neighbours in space
    Slot free_before = no_slot, free_after = no_slot;  // neighbours in the free list of the class
    bool used = false;
  };
  struct SizeClass {
    unsigned first = 0, second = 0;
  };

  static SizeClass class_of(std::uint64_t length);
  static std::uint32_t hash_of(std::uint64_t start);
  [[nodiscard]] Slot find_in_class(SizeClass size_class, std::uint64_t length, unsigned count_max) const;
  [[nodiscard]] Slot find_above(SizeClass size_class) const;
  void link_free(Slot slot);
  void unlink_free(Slot slot);
  void split(Slot slot, std::uint64_t length);
  void absorb_after(Slot slot);
  [[nodiscard]] std::string check_space(std::size_t& free_count) const;
  [[nodiscard]] std::string check_lists(std::size_t free_count) const;

  std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
  SlotPool<Range> ranges_;
  Slot first_ = no_slot;  // the range at offset 0
  SlotIndex used_index_;  // by start: used ranges
  std::uint64_t first_bits_ = 0;
  std::array<std::uint32_t, first_level_count> second_bits_{};
  std::array<std::array<Slot, second_level_count>, first_level_count> heads_{};
};

}  // namespace moonpool
