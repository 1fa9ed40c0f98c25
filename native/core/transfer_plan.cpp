#include "core/transfer_plan.hpp"

#include <algorithm>
#include <utility>

namespace moonpool {

namespace {

constexpr std::uint32_t slot_bits = 20;  // of an id: its place; the rest is never used twice

Slot place_of(std::uint64_t id) { return static_cast<Slot>(id & ((1ULL << slot_bits) - 1)); }

}  // namespace

TransferPlan::TransferPlan(const PlanLimits& limits) : limits_(limits), rails_(limits.rails), turns_(limits.turns) {}

RailIndex TransferPlan::add_rail(const RailTraits& traits) {
  sent_on_.push_back(no_slot);
  return rails_.add(traits);
}

Slot TransferPlan::slot_of(TransferId transfer) const {
  const Slot slot = place_of(transfer);
  return transfer != 0 && slot < transfers_.end() && transfers_[slot].id == transfer ? slot : no_slot;
}

Slot TransferPlan::slot_of_slice(SliceId slice) const {
  const Slot slot = place_of(slice);
  return slice != 0 && slot < sent_.end() && sent_[slot].id == slice ? slot : no_slot;
}

std::optional<TransferId> TransferPlan::add(std::span<const PlannedOperation> operations, const PlannedTransfer& how,
                                            std::uint64_t now_us) {
  if (transfers_.count() >= limits_.transfer_count_max || operations.size() > limits_.operation_count_max) {
    return std::nullopt;
  }
  const Slot slot = transfers_.acquire();
  Transfer& transfer = transfers_[slot];
  transfer = Transfer{};
  transfer.id = (++last_serial_ << slot_bits) | slot;
  transfer.priority = how.priority;
  transfer.operations.reserve(operations.size());
  for (const PlannedOperation& operation : operations) {
    transfer.operations.push_back({.length = operation.length, .write = operation.write});
    transfer.pending_bytes += operation.length;
    transfer.open_count += operation.length > 0 ? 1 : 0;
  }
  const bool whole = transfer.pending_bytes <= limits_.slices.whole_bytes_max;
  transfer.whole_bytes = whole ? transfer.pending_bytes : 0;
  pending_bytes_[static_cast<std::size_t>(how.priority)] += transfer.pending_bytes;
  deadlines_.push(std::max(how.deadline_us, now_us), slot);
  skip_settled(transfer);
  if (transfer.pending_bytes > 0) { turns_.add(slot, how.priority); }
  const TransferId id = transfer.id;
  if (rails_.hopeless(limits_.connect_attempts_max) && rails_to_connect(now_us).empty()) {
    (void)end(slot, Reason::unavailable);
  } else {
    finish_if_complete(slot);
  }
  return id;
}

void TransferPlan::connected(RailIndex rail, std::uint64_t connection, std::uint64_t now_us) {
  rails_.connected(rail, connection, now_us);
}

void TransferPlan::finished(SliceId slice, std::uint64_t now_us) {
  const Slot slot = slot_of_slice(slice);
  if (slot == no_slot) { return; }
  const Sent& sent = sent_[slot];
  rails_.finished(sent.rail, sent.part.length, sent.started_us, now_us);
  if (sent.transfer != no_slot) {
    Operation& operation = transfers_[sent.transfer].operations[sent.part.operation];
    if (operation.reason == Reason::none) { operation.applied_bytes += sent.part.length; }
  }
  end_slice(slot);
}

void TransferPlan::refused(SliceId slice, Reason reason, std::uint64_t now_us) {
  const Slot slot = slot_of_slice(slice);
  if (slot == no_slot) { return; }
  const Sent& sent = sent_[slot];
  rails_.refused(sent.rail, sent.part.length, now_us);
  if (sent.transfer != no_slot) {
    note_unapplied(transfers_[sent.transfer], sent.part);
    fail_operation(sent.transfer, sent.part.operation, reason);
  }
  end_slice(slot);
}

// The slice is on no rail any more; what it means for its operation is noted already.
void TransferPlan::end_slice(Slot slot) {
  Sent& sent = sent_[slot];
  unlink(sent_, sent_on_[sent.rail], slot, &Sent::link);
  sent.id = 0;
  sent_.release(slot);
  if (sent.transfer == no_slot) { return; }
  --transfers_[sent.transfer].operations[sent.part.operation].inflight_count;
  settle(sent.transfer, sent.part.operation);
  finish_if_complete(sent.transfer);
}

// After each end of one of its slices: whether it has its outcome now. None of its slices goes out after that.
void TransferPlan::settle(Slot transfer, std::uint32_t operation) {
  const Operation& ended = transfers_[transfer].operations[operation];
  const bool settled = ended.reason == Reason::none ? ended.applied_bytes == ended.length : ended.inflight_count == 0;
  if (settled) { --transfers_[transfer].open_count; }
}

// What of it is not under way stays where it is.
void TransferPlan::fail_operation(Slot slot, std::uint32_t operation, Reason reason) {
  Transfer& transfer = transfers_[slot];
  Operation& failed = transfer.operations[operation];
  if (failed.reason != Reason::none) { return; }
  failed.reason = reason;
  std::uint64_t dropped_bytes = 0;
  std::erase_if(transfer.again, [&](const Part& part) {
    if (part.operation != operation) { return false; }
    note_unapplied(transfer, part);
    dropped_bytes += part.length;
    return true;
  });
  if (transfer.cut_operation == operation) {
    const Part rest{operation, 1, transfer.cut_offset, failed.length - transfer.cut_offset};
    note_unapplied(transfer, rest);
    dropped_bytes += rest.length;
    transfer.cut_offset = failed.length;
    skip_settled(transfer);
  }
  transfer.pending_bytes -= dropped_bytes;
  pending_bytes_[static_cast<std::size_t>(transfer.priority)] -= dropped_bytes;
  if (transfer.pending_bytes == 0) { turns_.remove(slot); }
}

void TransferPlan::note_unapplied(Transfer& transfer, const Part& part) const {
  if (transfer.unapplied.size() >= unapplied_count_max || part.length == 0) { return; }
  transfer.unapplied.push_back({part.operation, part.offset, part.length});
}

void TransferPlan::finish_if_complete(Slot slot) {
  const Transfer& transfer = transfers_[slot];
  if (transfer.open_count == 0 && transfer.stale.empty()) { (void)end(slot, Reason::none); }
}

std::vector<PlannedSlice> TransferPlan::give_up(TransferId transfer, Reason reason) {
  const Slot slot = slot_of(transfer);
  return slot == no_slot ? std::vector<PlannedSlice>{} : end(slot, reason);
}

std::vector<PlannedSlice> TransferPlan::expire(std::uint64_t now_us) {
  std::vector<PlannedSlice> under_way;
  while (!deadlines_.empty() && deadlines_.top_key() <= now_us) {
    const std::vector<PlannedSlice> of_one = end(deadlines_.top(), Reason::timed_out);
    under_way.insert(under_way.end(), of_one.begin(), of_one.end());
  }
  return under_way;
}

// The transfer has its results; slices of it that are under way belong to nobody.
std::vector<PlannedSlice> TransferPlan::end(Slot slot, Reason reason) {
  Transfer& transfer = transfers_[slot];
  std::vector<PlannedSlice> under_way;
  const bool has_slices = std::any_of(transfer.operations.begin(), transfer.operations.end(),
                                      [](const Operation& operation) { return operation.inflight_count > 0; });
  for (std::size_t rail = 0; has_slices && rail < sent_on_.size(); ++rail) {
    for (Slot place = sent_on_[rail]; place != no_slot; place = sent_[place].link.after) {
      Sent& sent = sent_[place];
      if (sent.transfer != slot) { continue; }
      under_way.push_back(described(sent, transfer.id));
      note_unapplied(transfer, sent.part);
      sent.transfer = no_slot;
    }
  }
  std::vector<OperationResult> results;
  results.reserve(transfer.operations.size());
  for (std::uint32_t index = 0; index < transfer.operations.size(); ++index) {
    Operation& operation = transfer.operations[index];
    const bool uncertain = operation.write && (operation.inflight_count > 0 || is_stale(transfer, index));
    const bool open = operation.applied_bytes < operation.length || is_stale(transfer, index);
    if (open) { fail_operation(slot, index, reason); }
    results.push_back({.reason = operation.reason, .may_be_applied_later = uncertain});
  }
  deadlines_.remove(slot);
  done_.push_back({transfer.id, std::move(results), std::move(transfer.unapplied)});
  transfer = Transfer{};
  transfers_.release(slot);
  return under_way;
}

bool TransferPlan::is_stale(const Transfer& transfer, std::uint32_t operation) const {
  return std::any_of(transfer.stale.begin(), transfer.stale.end(),
                     [&](const Stale& stale) { return stale.operation == operation; });
}

void TransferPlan::failed(RailIndex rail, std::uint64_t now_us) {
  rails_.failed(rail, now_us);
  while (sent_on_[rail] != no_slot) { lose_slice(sent_on_[rail]); }
  if (!rails_.hopeless(limits_.connect_attempts_max)) { return; }
  for (Slot slot = 0; slot < transfers_.end(); ++slot) {
    if (transfers_[slot].id != 0) { (void)end(slot, Reason::unavailable); }
  }
}

void TransferPlan::lose_slice(Slot slot) {
  const Sent& sent = sent_[slot];
  const std::uint64_t connection = rails_[sent.rail].connection;
  if (sent.write && std::find(drops_owed_.begin(), drops_owed_.end(), connection) == drops_owed_.end()) {
    drops_owed_.push_back(connection);
  }
  if (sent.transfer != no_slot) {
    Transfer& transfer = transfers_[sent.transfer];
    const Stale stale{connection, sent.part.operation};
    if (sent.write && std::find(transfer.stale.begin(), transfer.stale.end(), stale) == transfer.stale.end()) {
      transfer.stale.push_back(stale);
    }
    if (transfer.operations[sent.part.operation].reason != Reason::none) {
      note_unapplied(transfer, sent.part);
    } else if (sent.part.attempt >= limits_.attempts_max) {
      note_unapplied(transfer, sent.part);
      fail_operation(sent.transfer, sent.part.operation, Reason::unavailable);
    } else {
      Part part = sent.part;
      ++part.attempt;
      send_again(sent.transfer, part);
    }
  }
  end_slice(slot);
}

void TransferPlan::send_again(Slot slot, const Part& part) {
  Transfer& transfer = transfers_[slot];
  transfer.again.push_back(part);
  transfer.pending_bytes += part.length;
  pending_bytes_[static_cast<std::size_t>(transfer.priority)] += part.length;
  turns_.add(slot, transfer.priority);
}

void TransferPlan::withdrawn(SliceId slice) {
  const Slot slot = slot_of_slice(slice);
  if (slot == no_slot) { return; }
  const Sent& sent = sent_[slot];
  rails_.withdrawn(sent.rail, sent.part.length);
  if (sent.transfer != no_slot) {
    if (transfers_[sent.transfer].operations[sent.part.operation].reason == Reason::none) {
      send_again(sent.transfer, sent.part);
    } else {
      note_unapplied(transfers_[sent.transfer], sent.part);
    }
  }
  end_slice(slot);
}

void TransferPlan::dropped(std::uint64_t connection) {
  std::erase(drops_owed_, connection);
  for (Slot slot = 0; slot < transfers_.end(); ++slot) {
    Transfer& transfer = transfers_[slot];
    if (transfer.id == 0) { continue; }
    std::erase_if(transfer.stale, [&](const Stale& stale) { return stale.connection == connection; });
    finish_if_complete(slot);
  }
}

std::vector<RailIndex> TransferPlan::rails_to_connect(std::uint64_t now_us) const {
  std::vector<RailIndex> due;
  if (transfers_.count() == 0 && drops_owed_.empty()) { return due; }
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    if (rails_.connect_at_us(rail) <= now_us) { due.push_back(rail); }
  }
  return due;
}

std::uint64_t TransferPlan::wake_at_us() const {
  std::uint64_t wake_at_us = look_at_us_;
  if (!deadlines_.empty()) { wake_at_us = std::min(wake_at_us, deadlines_.top_key()); }
  if (transfers_.count() == 0 && drops_owed_.empty()) { return wake_at_us; }
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    wake_at_us = std::min(wake_at_us, rails_.connect_at_us(rail));
  }
  return wake_at_us;
}

}  // namespace moonpool
