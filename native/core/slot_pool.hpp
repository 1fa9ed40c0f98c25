// Numbered places for values of one type, in chunks: growing moves nothing, so references stay good.
#pragma once

#include <memory>

#include "core/slot_index.hpp"

namespace moonpool {

// Freed slots are given out again, the last freed first (its memory is warm). A slot's value is not reset:
// whoever acquires it fills it.
template <typename Value>
class SlotPool {
 public:
  SlotPool() = default;
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  SlotPool(SlotPool&&) noexcept = default;
  SlotPool& operator=(SlotPool&&) noexcept = default;
  ~SlotPool() = default;

  [[nodiscard]] Slot acquire() {
    ++count_;
    if (!free_.empty()) {
      const Slot slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (end_ % chunk_slot_count == 0) chunks_.push_back(std::make_unique<Value[]>(chunk_slot_count));
    return end_++;
  }
  void release(Slot slot) {
    --count_;
    free_.push_back(slot);
  }
  // Like release, but the slot is never given out again.
  void retire() { --count_; }

  [[nodiscard]] Value& operator[](Slot slot) { return chunks_[slot / chunk_slot_count][slot % chunk_slot_count]; }
  [[nodiscard]] const Value& operator[](Slot slot) const {
    return chunks_[slot / chunk_slot_count][slot % chunk_slot_count];
  }
  void prefetch(Slot slot) const { __builtin_prefetch(&(*this)[slot]); }
  [[nodiscard]] std::size_t bytes() const {
    return chunks_.size() * chunk_slot_count * sizeof(Value) + free_.capacity() * sizeof(Slot);
  }
  // One past the highest slot ever given out.
  [[nodiscard]] Slot end() const { return end_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  static constexpr Slot chunk_slot_count = 4096;
  std::vector<std::unique_ptr<Value[]>> chunks_;
  std::vector<Slot> free_;
  Slot end_ = 0;
  std::size_t count_ = 0;
};

}  // namespace moonpool
