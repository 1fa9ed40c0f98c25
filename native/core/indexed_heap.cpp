#include "core/indexed_heap.hpp"

#include <algorithm>

namespace moonpool {

void IndexedHeap::put(std::size_t place, Entry entry) {
  entries_[place] = entry;
  places_[entry.slot] = static_cast<std::uint32_t>(place);
}

void IndexedHeap::sift_up(std::size_t place, Entry entry) {
  while (place > 0) {
    const std::size_t above = (place - 1) / 2;
    if (entries_[above].key <= entry.key) break;
    put(place, entries_[above]);
    place = above;
  }
  put(place, entry);
}

void IndexedHeap::sift_down(std::size_t place, Entry entry) {
  for (;;) {
    std::size_t below = 2 * place + 1;
    if (below >= entries_.size()) break;
    if (below + 1 < entries_.size() && entries_[below + 1].key < entries_[below].key) ++below;
    if (entry.key <= entries_[below].key) break;
    put(place, entries_[below]);
    place = below;
  }
  put(place, entry);
}

void IndexedHeap::push(std::uint64_t key, Slot slot) {
  if (slot >= places_.size()) places_.resize(std::max<std::size_t>(slot + 1, places_.size() * 2), absent);
  entries_.push_back({key, slot});
  sift_up(entries_.size() - 1, {key, slot});
}

void IndexedHeap::remove(Slot slot) {
  const std::size_t place = places_[slot];
  places_[slot] = absent;
  const Entry last = entries_.back();
  entries_.pop_back();
  if (place == entries_.size()) return;
  if (place > 0 && last.key < entries_[(place - 1) / 2].key) {
    sift_up(place, last);
  } else {
    sift_down(place, last);
  }
}

std::string IndexedHeap::check_integrity() const {
  std::size_t placed_count = 0;
  for (std::uint32_t place : places_) placed_count += place != absent;
  if (placed_count != entries_.size()) return "heap: places and entries differ in number";
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    if (places_[entries_[place].slot] != place) return "heap: a slot's place is wrong";
    if (place > 0 && entries_[place].key < entries_[(place - 1) / 2].key) return "heap: order is broken";
  }
  return {};
}

}  // namespace moonpool
