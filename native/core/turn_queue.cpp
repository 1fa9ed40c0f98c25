#include "core/turn_queue.hpp"

#include <algorithm>

namespace moonpool {

namespace {

std::int64_t thousandths(std::uint64_t bytes, std::uint64_t factor) {
  return static_cast<std::int64_t>(bytes * factor);
}

}  // namespace

void TurnQueue::add(Slot transfer, Priority priority) {
  if (transfer >= nodes_.size()) { nodes_.resize(std::size_t{transfer} + 1); }
  if (nodes_[transfer].waits) { return; }
  nodes_[transfer] = {no_slot, no_slot, priority, true};
  append(transfer, lists_[index(priority)]);
  ++count_;
}

void TurnQueue::append(Slot transfer, List& list) {
  nodes_[transfer].before = list.tail;
  nodes_[transfer].after = no_slot;
  (list.tail == no_slot ? list.head : nodes_[list.tail].after) = transfer;
  list.tail = transfer;
}

void TurnQueue::remove(Slot transfer) {
  if (transfer >= nodes_.size() || !nodes_[transfer].waits) { return; }
  Node& node = nodes_[transfer];
  List& list = lists_[index(node.priority)];
  if (list.head == transfer) { list.spent_bytes = 0; }
  (node.before == no_slot ? list.head : nodes_[node.before].after) = node.after;
  (node.after == no_slot ? list.tail : nodes_[node.after].before) = node.before;
  if (list.head == no_slot) { list.saved = 0; }
  node.waits = false;
  --count_;
}

bool TurnQueue::promoted(Priority priority) const {
  const List& list = lists_[index(priority)];
  return list.head != no_slot && list.saved >= thousandths(limits_.promotion_bytes, 1'000) && overtaken(priority);
}

std::array<Priority, priority_count> TurnQueue::order() const {
  std::array<Priority, priority_count> order{Priority::latency, Priority::normal, Priority::bulk};
  std::stable_sort(order.begin(), order.end(), [&](Priority a, Priority b) { return promoted(a) && !promoted(b); });
  return order;
}

void TurnQueue::spend(Priority priority, std::uint64_t bytes) {
  List& list = lists_[index(priority)];
  if (promoted(priority)) {
    list.saved -= thousandths(bytes, 1'000);
  } else if (!overtaken(priority)) {  // served without having been let by: what it saved is paid back
    list.saved = std::min<std::int64_t>(list.saved, std::max<std::int64_t>(0, list.saved - thousandths(bytes, 1'000)));
  }
  for (std::size_t lower = index(priority) + 1; lower < priority_count; ++lower) {
    List& passed = lists_[lower];
    if (passed.head == no_slot) { continue; }
    passed.saved = std::min(passed.saved + thousandths(bytes, limits_.saved_permille),
                            thousandths(limits_.promotion_bytes, 2'000));
  }
  list.spent_bytes += bytes;
  if (list.spent_bytes < limits_.turn_bytes) { return; }
  list.spent_bytes = 0;
  const Slot turn = list.head;
  if (turn == no_slot || turn == list.tail) { return; }
  list.head = nodes_[turn].after;
  nodes_[list.head].before = no_slot;
  append(turn, list);
}

// Somebody of a higher priority waits.
bool TurnQueue::overtaken(Priority priority) const {
  for (std::size_t higher = 0; higher < index(priority); ++higher) {
    if (lists_[higher].head != no_slot) { return true; }
  }
  return false;
}

std::string TurnQueue::check_integrity() const {
  std::size_t found = 0;
  for (std::size_t which = 0; which < priority_count; ++which) {
    const List& list = lists_[which];
    Slot before = no_slot;
    for (Slot place = list.head; place != no_slot; place = nodes_[place].after) {
      const Node& node = nodes_[place];
      if (!node.waits || node.before != before || index(node.priority) != which) { return "a broken list of turns"; }
      if (++found > count_) { return "more transfers in turns than are counted"; }
      before = place;
    }
    if (list.tail != before) { return "a list of turns with a wrong end"; }
    if (list.head == no_slot && list.saved != 0) { return "an empty list that saves"; }
  }
  return found == count_ ? std::string() : "fewer transfers in turns than are counted";
}

}  // namespace moonpool
