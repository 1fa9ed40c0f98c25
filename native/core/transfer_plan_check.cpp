#include <algorithm>

#include "core/transfer_plan.hpp"

namespace moonpool {

std::string TransferPlan::check_integrity() const {
  if (std::string fault = rails_.check_integrity(); !fault.empty()) { return fault; }
  if (std::string fault = turns_.check_integrity(); !fault.empty()) { return fault; }
  if (std::string fault = deadlines_.check_integrity(); !fault.empty()) { return fault; }
  std::size_t sent_count = 0;
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    if (std::string fault = check_rail(rail); !fault.empty()) { return fault; }
    sent_count += rails_[rail].inflight_count;
  }
  if (sent_count != sent_.count()) { return "slices under way that are on no rail"; }
  std::array<std::uint64_t, priority_count> pending_bytes{};
  std::size_t waiting_count = 0;
  for (Slot slot = 0; slot < transfers_.end(); ++slot) {
    if (transfers_[slot].id == 0) { continue; }
    if (std::string fault = check_transfer(slot); !fault.empty()) { return fault; }
    pending_bytes[static_cast<std::size_t>(transfers_[slot].priority)] += transfers_[slot].pending_bytes;
    waiting_count += transfers_[slot].pending_bytes > 0 ? 1 : 0;
  }
  if (pending_bytes != pending_bytes_) { return "waiting bytes of a priority are miscounted"; }
  if (waiting_count != turns_.count()) { return "a transfer waits without a turn, or has a turn and nothing to send"; }
  if (deadlines_.count() != transfers_.count()) { return "a transfer without a deadline"; }
  return {};
}

std::string TransferPlan::check_rail(RailIndex rail) const {
  std::uint64_t bytes = 0, count = 0;
  for (Slot slot = sent_on_[rail]; slot != no_slot; slot = sent_[slot].link.after) {
    const Sent& sent = sent_[slot];
    if (sent.id == 0 || sent.rail != rail) { return "a slice on a rail that is not its own"; }
    if (sent.transfer != no_slot && transfers_[sent.transfer].id == 0) { return "a slice of no transfer"; }
    bytes += sent.part.length;
    ++count;
  }
  const RailRecord& record = rails_[rail];
  const bool counted = record.inflight_bytes == bytes && record.inflight_count == count;
  return counted ? std::string() : "what is under way on a rail is miscounted";
}

// Every byte of an operation is in one place: applied, under way, to be sent again, or never cut.
std::string TransferPlan::check_transfer(Slot slot) const {
  const Transfer& transfer = transfers_[slot];
  std::vector<std::uint64_t> bytes(transfer.operations.size()), slices(transfer.operations.size());
  for (const Slot head : sent_on_) {
    for (Slot place = head; place != no_slot; place = sent_[place].link.after) {
      if (sent_[place].transfer != slot) { continue; }
      bytes[sent_[place].part.operation] += sent_[place].part.length;
      ++slices[sent_[place].part.operation];
    }
  }
  std::uint64_t pending_bytes = 0;
  for (const Part& part : transfer.again) {
    bytes[part.operation] += part.length;
    pending_bytes += part.length;
  }
  std::size_t open_count = 0;
  for (std::size_t index = 0; index < transfer.operations.size(); ++index) {
    const Operation& operation = transfer.operations[index];
    const std::uint64_t cut = index < transfer.cut_operation    ? operation.length
                              : index == transfer.cut_operation ? transfer.cut_offset
                                                                : 0;
    bytes[index] += operation.applied_bytes + operation.length - cut;
    pending_bytes += operation.length - cut;
    if (operation.inflight_count != slices[index]) { return "slices of an operation are miscounted"; }
    if (operation.reason == Reason::none && bytes[index] != operation.length) { return "bytes in two places, or none"; }
    const bool open =
        operation.reason == Reason::none ? operation.applied_bytes < operation.length : operation.inflight_count > 0;
    open_count += open ? 1 : 0;
  }
  if (pending_bytes != transfer.pending_bytes) { return "waiting bytes of a transfer are miscounted"; }
  if (open_count != transfer.open_count) { return "open operations are miscounted"; }
  return open_count == 0 && transfer.stale.empty() ? "a transfer that is done and still here" : std::string();
}

}  // namespace moonpool
