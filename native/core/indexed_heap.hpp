// A binary min-heap of (key, slot) from which any slot can be taken out again.
#pragma once

#include "core/slot_index.hpp"

namespace moonpool {

class IndexedHeap {
 public:
  // slot must not be in the heap.
  void push(std::uint64_t key, Slot slot);
  // slot must be in the heap.
  void remove(Slot slot);
  [[nodiscard]] bool contains(Slot slot) const { return slot < places_.size() && places_[slot] != absent; }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t count() const { return entries_.size(); }
  // The heap must not be empty.
  [[nodiscard]] std::uint64_t top_key() const { return entries_.front().key; }
  [[nodiscard]] Slot top() const { return entries_.front().slot; }
  // slot must be in the heap.
  [[nodiscard]] std::uint64_t key_of(Slot slot) const { return entries_[places_[slot]].key; }
  [[nodiscard]] std::string check_integrity() const;

 private:
  struct Entry {
    std::uint64_t key;
    Slot slot;
  };
  static constexpr std::uint32_t absent = std::numeric_limits<std::uint32_t>::max();

  void put(std::size_t place, Entry entry);
  void sift_up(std::size_t place, Entry entry);
  void sift_down(std::size_t place, Entry entry);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // by slot: where in entries_
};

}  // namespace moonpool
