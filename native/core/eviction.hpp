// Who goes first: evictable units in the order of (priority, last use).
#pragma once

#include <array>

#include "core/indexed_heap.hpp"

namespace moonpool {

// One list a priority, ordered by last use because the newest joins at its end in O(1). Units that come back with
// an old last use (a parent whose last child went, a keep that ended) wait in a heap instead, so that the order is
// exact: the victim is the smaller of the first list's head and the heap's top.
class EvictionQueue {
 public:
  EvictionQueue();
  // unit must not be in the queue. last_use counts uses of the whole table: no two are equal, all below 2^56.
  void add(Slot unit, std::uint8_t priority, std::uint64_t last_use);
  // Does nothing when the unit is not in the queue.
  void remove(Slot unit);
  [[nodiscard]] bool contains(Slot unit) const;
  // The unit to go first, or no_slot.
  [[nodiscard]] Slot victim() const;
  [[nodiscard]] std::size_t count() const { return listed_count_ + heap_.count(); }
  [[nodiscard]] std::string check_integrity() const;

 private:
  static constexpr std::size_t priority_count = 256;
  struct Node {
    std::uint64_t key = 0;  // priority, then last use
    Slot before = no_slot, after = no_slot;
    bool listed = false;
  };
  struct List {
    Slot head = no_slot, tail = no_slot;
  };

  std::vector<Node> nodes_;  // by unit
  std::array<List, priority_count> lists_;
  std::array<std::uint64_t, priority_count / 64> occupied_{};  // which lists have members
  IndexedHeap heap_;
  std::size_t listed_count_ = 0;
};

}  // namespace moonpool
