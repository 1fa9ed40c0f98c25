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
class SlotIndex {
 public:
  // The first slot under hash that matches(slot), or no_slot.
  template <typename Matches>
  [[nodiscard]] Slot find(std::uint32_t hash, Matches&& matches) const {
    if (entries_.empty()) return no_slot;
    for (std::size_t place = hash & mask(); entries_[place].slot != no_slot; place = (place + 1) & mask()) {
      if (entries_[place].hash == hash && matches(entries_[place].slot)) return entries_[place].slot;
    }
    return no_slot;
  }

  void insert(std::uint32_t hash, Slot slot) {
    // At most seven eighths full would probe long; five eighths keeps a failed search at about four steps.
    if ((count_ + 1) * 8 > entries_.size() * 5) grow();
    place_entry({hash, slot});
    ++count_;
  }

  // The pair must be in the index.
  void erase(std::uint32_t hash, Slot slot) {
    std::size_t hole = place_of(hash, slot);
    for (std::size_t next = (hole + 1) & mask(); entries_[next].slot != no_slot; next = (next + 1) & mask()) {
      const std::size_t home = entries_[next].hash & mask();
      if (((next - home) & mask()) < ((next - hole) & mask())) continue;
      entries_[hole] = entries_[next];
      hole = next;
    }
    entries_[hole].slot = no_slot;
    --count_;
  }

  // The pair (hash, slot) must be in the index.
  void replace(std::uint32_t hash, Slot slot, Slot successor) { entries_[place_of(hash, slot)].slot = successor; }

  [[nodiscard]] std::size_t count() const { return count_; }

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

  [[nodiscard]] std::size_t mask() const { return entries_.size() - 1; }

  [[nodiscard]] std::size_t place_of(std::uint32_t hash, Slot slot) const {
    std::size_t place = hash & mask();
    while (entries_[place].slot != slot || entries_[place].hash != hash) place = (place + 1) & mask();
    return place;
  }

  void place_entry(Entry entry) {
    std::size_t place = entry.hash & mask();
    while (entries_[place].slot != no_slot) place = (place + 1) & mask();
    entries_[place] = entry;
  }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 16 : entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.slot != no_slot) place_entry(entry);
    }
  }

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace moonpool
