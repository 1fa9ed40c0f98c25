// A hash index from 32-bit hashes to slot numbers; what a slot holds is its owner's business.
#pragma once

#include "core/types.hpp"

namespace moonpool {

using Slot = std::uint32_t;
inline constexpr Slot no_slot = std::numeric_limits<Slot>::max();

// Spreads the bits of a value (finalizer of SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Open addressing with linear probing and backward-shift deletion: 8 bytes an entry, no tombstones. The hash is
// kept beside the slot, so that growing and most failed comparisons never touch the slots themselves.
// An entry's home is hash · size / 2^32 (Lemire, ACM TOMACS 2019), so hashes must be uniform in their upper bits,
// sizes need not be powers of two, entries lie in the order of their hashes, and growing (by a quarter: between
// 64 and 80 % full) is one pass in order.
class SlotIndex {
 public:
  // The first slot under hash that matches(slot), or no_slot.
  template <typename Matches>
  [[nodiscard]] Slot find(std::uint32_t hash, Matches&& matches) const {
    if (entries_.empty()) return no_slot;
    for (std::size_t place = home(hash); entries_[place].slot != no_slot; place = after(place)) {
      if (entries_[place].hash == hash && matches(entries_[place].slot)) return entries_[place].slot;
    }
    return no_slot;
  }

  // Asks for the memory that find(hash) will read.
  void prefetch(std::uint32_t hash) const {
    if (!entries_.empty()) __builtin_prefetch(&entries_[home(hash)]);
  }

  void insert(std::uint32_t hash, Slot slot) {
    if ((count_ + 1) * 5 > entries_.size() * 4) grow();
    place_entry({hash, slot});
    ++count_;
  }

  // The pair must be in the index.
  void erase(std::uint32_t hash, Slot slot) {
    std::size_t hole = place_of(hash, slot);
    for (std::size_t next = after(hole); entries_[next].slot != no_slot; next = after(next)) {
      if (distance(home(entries_[next].hash), next) < distance(hole, next)) continue;
      entries_[hole] = entries_[next];
      hole = next;
    }
    entries_[hole].slot = no_slot;
    --count_;
  }

  // The pair (hash, slot) must be in the index.
  void replace(std::uint32_t hash, Slot slot, Slot successor) { entries_[place_of(hash, slot)].slot = successor; }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Entry& entry : entries_) {
      if (entry.slot != no_slot) visit(entry.hash, entry.slot);
    }
  }

 private:
  struct Entry {
    std::uint32_t hash = 0;
    Slot slot = no_slot;
  };

  [[nodiscard]] std::size_t home(std::uint32_t hash) const {
    return static_cast<std::size_t>((std::uint64_t{hash} * entries_.size()) >> 32);
  }
  [[nodiscard]] std::size_t after(std::size_t place) const { return place + 1 == entries_.size() ? 0 : place + 1; }
  // Steps from one place forward to another.
  [[nodiscard]] std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + entries_.size() - from;
  }

  [[nodiscard]] std::size_t place_of(std::uint32_t hash, Slot slot) const {
    std::size_t place = home(hash);
    while (entries_[place].slot != slot || entries_[place].hash != hash) place = after(place);
    return place;
  }

  void place_entry(Entry entry) {
    std::size_t place = home(entry.hash);
    while (entries_[place].slot != no_slot) place = after(place);
    entries_[place] = entry;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() < 64 ? entries_.size() + 16 : entries_.size() + entries_.size() / 4);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.slot != no_slot) place_entry(entry);
    }
  }

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace moonpool
