// Whose turn it is among transfers that wait: by priority, then in turns. A lower priority that is overtaken saves up
// part of the bytes that went before it, and goes first when it has saved enough: it never starves, and what overtakes
// it never waits for more than one slice at a time.
#pragma once

#include <array>

#include "core/slot_index.hpp"

namespace moonpool {

// Latency-critical work overtakes bulk work, without starving it.
enum class Priority : std::uint8_t { latency = 0, normal = 1, bulk = 2 };
inline constexpr std::size_t priority_count = 3;

struct TurnLimits {
  std::uint64_t turn_bytes = 1U << 20U;  // a transfer's turn among those of its priority
  std::uint32_t saved_permille = 62;     // of the bytes that overtake, so many are saved
  std::uint64_t promotion_bytes = 64U << 10U;  // saved: enough to go first
};

class TurnQueue {
 public:
  explicit TurnQueue(TurnLimits limits) : limits_(limits) {}
  // Does nothing when the transfer is in the queue.
  void add(Slot transfer, Priority priority);
  // Does nothing when the transfer is not in the queue.
  void remove(Slot transfer);
  // Whose turn it is, or no_slot.
  [[nodiscard]] Slot first(Priority priority) const { return lists_[index(priority)].head; }
  // It is being overtaken, and has saved enough to go first.
  [[nodiscard]] bool promoted(Priority priority) const;
  // Priorities in the order in which they may go now.
  [[nodiscard]] std::array<Priority, priority_count> order() const;
  // The first of this priority moves so many bytes.
  void spend(Priority priority, std::uint64_t bytes);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::string check_integrity() const;

 private:
  struct Node {
    Slot before = no_slot, after = no_slot;
    Priority priority = Priority::normal;
    bool waits = false;
  };
  struct List {
    Slot head = no_slot, tail = no_slot;
    std::uint64_t spent_bytes = 0;  // by the head, in its turn
    std::int64_t saved = 0;         // bytes * 1000; less than nothing after a slice longer than what was saved
  };
  [[nodiscard]] static std::size_t index(Priority priority) { return static_cast<std::size_t>(priority); }
  void append(Slot transfer, List& list);
  [[nodiscard]] bool overtaken(Priority priority) const;

  TurnLimits limits_;
  std::vector<Node> nodes_;  // by transfer
  std::array<List, priority_count> lists_;
  std::size_t count_ = 0;
};

}  // namespace moonpool
