#include "core/allocator.hpp"

#include <bit>

namespace moonpool {

namespace {
constexpr std::uint64_t granule_bytes = allocation_align_bytes;
// How many ranges of the request's own class are tried before a larger class is cut, and before giving up.
constexpr unsigned quick_try_count = 4;
constexpr unsigned last_try_count = 256;
}  // namespace

Allocator::Allocator(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes / granule_bytes * granule_bytes) {
  for (auto& row : heads_) row.fill(no_slot);
  if (capacity_bytes_ == 0) return;
  first_ = ranges_.acquire();
  ranges_[first_] = Range{};
  ranges_[first_].length = capacity_bytes_ / granule_bytes;
  link_free(first_);
}

Allocator::SizeClass Allocator::class_of(std::uint64_t length) {
  if (length < second_level_count) return {0, static_cast<unsigned>(length)};
  const unsigned top_bit = static_cast<unsigned>(std::bit_width(length)) - 1;
  const unsigned second = static_cast<unsigned>(length >> (top_bit - second_level_bits)) - second_level_count;
  return {top_bit - second_level_bits + 1, second};
}

std::uint32_t Allocator::hash_of(std::uint64_t start) { return static_cast<std::uint32_t>(mixed(start)); }

void Allocator::link_free(Slot slot) {
  const SizeClass size_class = class_of(ranges_[slot].length);
  Slot& head = heads_[size_class.first][size_class.second];
  ranges_[slot].used = false;
  ranges_[slot].free_before = no_slot;
  ranges_[slot].free_after = head;
  if (head != no_slot) ranges_[head].free_before = slot;
  head = slot;
  first_bits_ |= std::uint64_t{1} << size_class.first;
  second_bits_[size_class.first] |= 1U << size_class.second;
}

void Allocator::unlink_free(Slot slot) {
  const Range& range = ranges_[slot];
  const SizeClass size_class = class_of(range.length);
  if (range.free_after != no_slot) ranges_[range.free_after].free_before = range.free_before;
  if (range.free_before != no_slot) {
    ranges_[range.free_before].free_after = range.free_after;
    return;
  }
  heads_[size_class.first][size_class.second] = range.free_after;
  if (range.free_after != no_slot) return;
  second_bits_[size_class.first] &= ~(1U << size_class.second);
  if (second_bits_[size_class.first] == 0) first_bits_ &= ~(std::uint64_t{1} << size_class.first);
}

Slot Allocator::find_in_class(SizeClass size_class, std::uint64_t length, unsigned count_max) const {
  Slot slot = heads_[size_class.first][size_class.second];
  for (unsigned count = 0; slot != no_slot && count < count_max; ++count) {
    if (ranges_[slot].length >= length) return slot;
    slot = ranges_[slot].free_after;
  }
  return no_slot;
}

// Any range of a class above: all of them are long enough.
Slot Allocator::find_above(SizeClass size_class) const {
  const unsigned next_second = size_class.second + 1;
  if (next_second < second_level_count) {
    const std::uint32_t bits = second_bits_[size_class.first] >> next_second << next_second;
    if (bits != 0) return heads_[size_class.first][static_cast<unsigned>(std::countr_zero(bits))];
  }
  const unsigned next_first = size_class.first + 1;
  if (next_first >= first_level_count) return no_slot;
  const std::uint64_t bits = first_bits_ >> next_first << next_first;
  if (bits == 0) return no_slot;
  const unsigned first = static_cast<unsigned>(std::countr_zero(bits));
  return heads_[first][static_cast<unsigned>(std::countr_zero(second_bits_[first]))];
}

// Keeps length granules in the range and makes a free range of the rest.
void Allocator::split(Slot slot, std::uint64_t length) {
  if (ranges_[slot].length == length) return;
  const Slot rest_slot = ranges_.acquire();
  Range& range = ranges_[slot];
  Range& rest = ranges_[rest_slot];
  rest = Range{};
  rest.start = range.start + length;
  rest.length = range.length - length;
  rest.before = slot;
  rest.after = range.after;
  if (range.after != no_slot) ranges_[range.after].before = rest_slot;
  range.after = rest_slot;
  range.length = length;
  link_free(rest_slot);
}

// Joins the range after into this one. Neither may be in a free list.
void Allocator::absorb_after(Slot slot) {
  Range& range = ranges_[slot];
  const Slot gone = range.after;
  range.length += ranges_[gone].length;
  range.after = ranges_[gone].after;
  if (range.after != no_slot) ranges_[range.after].before = slot;
  ranges_.release(gone);
}

std::optional<std::uint64_t> Allocator::allocate(std::uint64_t size_bytes) {
  if (size_bytes == 0) size_bytes = 1;
  if (size_bytes > capacity_bytes_ - used_bytes_) return std::nullopt;
  const std::uint64_t length = (size_bytes + granule_bytes - 1) / granule_bytes;
  const SizeClass size_class = class_of(length);
  Slot slot = find_in_class(size_class, length, quick_try_count);
  if (slot == no_slot) slot = find_above(size_class);
  if (slot == no_slot) slot = find_in_class(size_class, length, last_try_count);
  if (slot == no_slot) return std::nullopt;
  unlink_free(slot);
  split(slot, length);
  Range& range = ranges_[slot];
  range.used = true;
  used_index_.insert(hash_of(range.start), slot);
  used_bytes_ += length * granule_bytes;
  return range.start * granule_bytes;
}

void Allocator::free(std::uint64_t offset) {
  const std::uint64_t start = offset / granule_bytes;
  Slot slot = used_index_.find(hash_of(start), [&](Slot candidate) { return ranges_[candidate].start == start; });
  if (slot == no_slot || offset % granule_bytes != 0) return;
  used_index_.erase(hash_of(start), slot);
  used_bytes_ -= ranges_[slot].length * granule_bytes;
  const Slot after = ranges_[slot].after;
  if (after != no_slot && !ranges_[after].used) {
    unlink_free(after);
    absorb_after(slot);
  }
  const Slot before = ranges_[slot].before;
  if (before != no_slot && !ranges_[before].used) {
    unlink_free(before);
    absorb_after(before);
    slot = before;
  }
  link_free(slot);
}

std::uint64_t Allocator::largest_free_bytes() const {
  if (first_bits_ == 0) return 0;
  const unsigned first = static_cast<unsigned>(std::bit_width(first_bits_)) - 1;
  const unsigned second = static_cast<unsigned>(std::bit_width(second_bits_[first])) - 1;
  std::uint64_t longest = 0;
  for (Slot slot = heads_[first][second]; slot != no_slot; slot = ranges_[slot].free_after) {
    longest = std::max(longest, ranges_[slot].length);
  }
  return longest * granule_bytes;
}

// The ranges cover the arena without gap or overlap, no two free ones touch, and the sums agree.
std::string Allocator::check_space(std::size_t& free_count) const {
  std::uint64_t position = 0, used = 0;
  std::size_t range_count = 0, used_count = 0;
  Slot before = no_slot;
  for (Slot slot = first_; slot != no_slot; slot = ranges_[slot].after) {
    const Range& range = ranges_[slot];
    if (++range_count > ranges_.count()) return "allocator: the ranges form a ring";
    if (range.start != position || range.length == 0) return "allocator: a gap, an overlap or an empty range";
    if (range.before != before) return "allocator: neighbours disagree";
    if (before != no_slot && !range.used && !ranges_[before].used) return "allocator: two free neighbours";
    if (range.used) {
      ++used_count;
      used += range.length;
      const Slot found = used_index_.find(hash_of(range.start), [&](Slot candidate) { return candidate == slot; });
      if (found == no_slot) return "allocator: a used range is not in the index";
    }
    position += range.length;
    before = slot;
  }
  free_count = range_count - used_count;
  if (range_count != ranges_.count()) return "allocator: a range is lost";
  if (used_count != used_index_.count()) return "allocator: the index holds a range that is not used";
  if (position * granule_bytes != capacity_bytes_) return "allocator: the ranges do not cover the arena";
  if (used * granule_bytes != used_bytes_) return "allocator: used bytes are wrong";
  return {};
}

// Every free range is in the list of its class, and the bitmaps say which lists have members.
std::string Allocator::check_lists(std::size_t free_count) const {
  std::size_t listed_count = 0;
  for (unsigned first = 0; first < first_level_count; ++first) {
    if (((first_bits_ >> first) & 1) != (second_bits_[first] != 0)) return "allocator: first bitmap is wrong";
    for (unsigned second = 0; second < second_level_count; ++second) {
      const Slot head = heads_[first][second];
      if (((second_bits_[first] >> second) & 1) != (head != no_slot)) return "allocator: second bitmap is wrong";
      Slot before = no_slot;
      for (Slot slot = head; slot != no_slot; slot = ranges_[slot].free_after) {
        const SizeClass size_class = class_of(ranges_[slot].length);
        if (++listed_count > free_count) return "allocator: a free list is too long";
        if (ranges_[slot].used || ranges_[slot].free_before != before) return "allocator: a free list is broken";
        if (size_class.first != first || size_class.second != second) return "allocator: a range in a wrong class";
        before = slot;
      }
    }
  }
  return listed_count == free_count ? std::string{} : "allocator: a free range is in no list";
}

std::string Allocator::check_integrity() const {
  std::size_t free_count = 0;
  std::string problem = check_space(free_count);
  return problem.empty() ? check_lists(free_count) : problem;
}

}  // namespace moonpool
