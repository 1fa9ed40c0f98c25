#include "core/eviction.hpp"

#include <algorithm>
#include <bit>

namespace moonpool {

namespace {
constexpr unsigned priority_shift = 56;
}

EvictionQueue::EvictionQueue() = default;

void EvictionQueue::add(Slot unit, std::uint8_t priority, std::uint64_t last_use) {
  if (unit >= nodes_.size()) nodes_.resize(std::max<std::size_t>(unit + 1, nodes_.size() * 2));
  const std::uint64_t key = (std::uint64_t{priority} << priority_shift) | last_use;
  List& list = lists_[priority];
  if (list.tail != no_slot && nodes_[list.tail].key > key) {
    nodes_[unit] = Node{key};
    heap_.push(key, unit);
    return;
  }
  nodes_[unit] = Node{key, list.tail, no_slot, true};
  (list.tail == no_slot ? list.head : nodes_[list.tail].after) = unit;
  list.tail = unit;
  occupied_[priority / 64] |= std::uint64_t{1} << (priority % 64);
  ++listed_count_;
}

void EvictionQueue::remove(Slot unit) {
  if (unit >= nodes_.size()) return;
  Node& node = nodes_[unit];
  if (!node.listed) {
    if (heap_.contains(unit)) heap_.remove(unit);
    return;
  }
  const std::size_t priority = node.key >> priority_shift;
  List& list = lists_[priority];
  (node.before == no_slot ? list.head : nodes_[node.before].after) = node.after;
  (node.after == no_slot ? list.tail : nodes_[node.after].before) = node.before;
  if (list.head == no_slot) occupied_[priority / 64] &= ~(std::uint64_t{1} << (priority % 64));
  node = Node{};
  --listed_count_;
}

bool EvictionQueue::contains(Slot unit) const {
  return unit < nodes_.size() && (nodes_[unit].listed || heap_.contains(unit));
}

Slot EvictionQueue::victim() const {
  Slot first = no_slot;
  for (std::size_t word = 0; word < occupied_.size() && first == no_slot; ++word) {
    if (occupied_[word] == 0) continue;
    first = lists_[word * 64 + static_cast<std::size_t>(std::countr_zero(occupied_[word]))].head;
  }
  if (heap_.empty()) return first;
  if (first == no_slot || heap_.top_key() < nodes_[first].key) return heap_.top();
  return first;
}

std::string EvictionQueue::check_integrity() const {
  std::size_t listed_count = 0;
  for (std::size_t priority = 0; priority < priority_count; ++priority) {
    const List& list = lists_[priority];
    const bool occupied = ((occupied_[priority / 64] >> (priority % 64)) & 1) != 0;
    if (occupied != (list.head != no_slot)) return "eviction: the map of lists is wrong";
    Slot before = no_slot;
    for (Slot unit = list.head; unit != no_slot; unit = nodes_[unit].after) {
      const Node& node = nodes_[unit];
      if (++listed_count > listed_count_) return "eviction: a list is too long";
      if (!node.listed || node.before != before || node.key >> priority_shift != priority)
        return "eviction: a list is broken";
      if (before != no_slot && nodes_[before].key >= node.key) return "eviction: a list is out of order";
      before = unit;
    }
    if (list.tail != before) return "eviction: a list's tail is wrong";
  }
  if (listed_count != listed_count_) return "eviction: the count is wrong";
  return heap_.check_integrity();
}

}  // namespace moonpool
