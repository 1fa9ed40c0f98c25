// Which slice goes next, and over which rail.
#include <algorithm>

#include "core/transfer_plan.hpp"

namespace moonpool {

namespace {

// Quarters of a rail's window. Latency-critical work finds room behind a full window of other work; bulk work keeps
// the queue before the wire short for as long as latency-critical work was seen.
constexpr std::uint32_t quarters_first = 8, quarters_usual = 4, quarters_beside = 2, quarters_bulk_beside = 1;
// Slices that must wait behind a probe, so that it is never the last of its transfer.
constexpr std::uint64_t probe_followers = 4, probe_followers_latency = 16;
constexpr std::uint64_t looks_per_stall = 4;

}  // namespace

std::optional<PlannedSlice> TransferPlan::next(std::uint64_t now_us) {
  if (turns_.empty() || drops_owed_.size() >= limits_.drop_count_max) { return std::nullopt; }
  for (const Priority priority : turns_.order()) {
    const Slot transfer = turns_.first(priority);
    if (transfer == no_slot) { continue; }
    const std::optional<Choice> choice = choose(transfer, turns_.promoted(priority), now_us);
    if (choice) { return send(transfer, *choice, now_us); }
  }
  return std::nullopt;
}

TransferPlan::Part TransferPlan::next_part(const Transfer& transfer) const {
  if (!transfer.again.empty()) { return transfer.again.back(); }
  const std::uint64_t length = transfer.operations[transfer.cut_operation].length;
  return {static_cast<std::uint32_t>(transfer.cut_operation), 1, transfer.cut_offset, length - transfer.cut_offset};
}

void TransferPlan::take_part(Transfer& transfer, std::uint64_t length) {
  transfer.pending_bytes -= length;
  pending_bytes_[static_cast<std::size_t>(transfer.priority)] -= length;
  if (transfer.again.empty()) {
    transfer.cut_offset += length;
    skip_settled(transfer);
    return;
  }
  Part& part = transfer.again.back();
  part.offset += length;
  part.length -= length;
  if (part.length == 0) { transfer.again.pop_back(); }
}

// To the next operation of which something is left to cut.
void TransferPlan::skip_settled(Transfer& transfer) const {
  while (transfer.cut_operation < transfer.operations.size() &&
         transfer.cut_offset == transfer.operations[transfer.cut_operation].length) {
    ++transfer.cut_operation;
    transfer.cut_offset = 0;
  }
}

PlannedSlice TransferPlan::send(Slot slot, const Choice& choice, std::uint64_t now_us) {
  Transfer& transfer = transfers_[slot];
  const Slot place = sent_.acquire();
  Sent& sent = sent_[place];
  sent.id = (++last_serial_ << 20U) | place;
  sent.transfer = slot;
  sent.part = next_part(transfer);
  sent.part.length = choice.length;
  sent.rail = choice.rail;
  sent.write = transfer.operations[sent.part.operation].write;
  sent.started_us = now_us;
  sent.predicted_us = rails_.completion_us(choice.rail, choice.length);
  link_front(sent_, sent_on_[choice.rail], place, &Sent::link);
  rails_.started(choice.rail, choice.length, now_us);
  ++transfer.operations[sent.part.operation].inflight_count;
  take_part(transfer, choice.length);
  turns_.spend(transfer.priority, choice.length);
  if (transfer.pending_bytes == 0) { turns_.remove(slot); }
  if (transfer.priority == Priority::latency) { latency_us_ = now_us; }
  if (look_at_us_ == never_us) {
    looked_us_ = now_us;
    look_at_us_ = now_us + limits_.rails.stall_us_min / looks_per_stall;
  }
  return described(sent, transfer.id);
}

PlannedSlice TransferPlan::described(const Sent& sent, TransferId transfer) const {
  return {.slice = sent.id,
          .transfer = transfer,
          .rail = sent.rail,
          .operation = sent.part.operation,
          .offset = sent.part.offset,
          .length = sent.part.length,
          .attempt = sent.part.attempt,
          .write = sent.write};
}

std::optional<TransferPlan::Choice> TransferPlan::choose(Slot slot, bool promoted, std::uint64_t now_us) {
  Transfer& transfer = transfers_[slot];
  Wanted wanted{.priority = transfer.priority, .promoted = promoted, .remaining = next_part(transfer).length};
  wanted.whole_bytes = transfer.whole_bytes;
  if (transfer.whole_bytes == 0) {
    if (promoted) { wanted.remaining = std::min(wanted.remaining, limits_.slices.slice_bytes_min); }
    const std::optional<Choice> probe = choose_probe(wanted, now_us);
    return probe ? probe : choose_soonest(wanted, now_us);
  }
  if (transfer.home && rails_[*transfer.home].state == RailState::up &&
      has_room(*transfer.home, wanted, wanted.remaining, now_us)) {
    return Choice{.rail = *transfer.home, .length = wanted.remaining};
  }
  const std::optional<Choice> choice = choose_soonest(wanted, now_us);
  if (choice) { transfer.home = choice->rail; }
  return choice;
}

// A rail that came back, or was idle for long, gets one short slice with enough work behind it that nobody waits for
// it.
std::optional<TransferPlan::Choice> TransferPlan::choose_probe(const Wanted& wanted, std::uint64_t now_us) const {
  const std::uint64_t followers = wanted.priority == Priority::latency ? probe_followers_latency : probe_followers;
  const std::uint64_t shortest = limits_.slices.slice_bytes_min;
  if (pending_bytes_[static_cast<std::size_t>(wanted.priority)] < followers * shortest) { return std::nullopt; }
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    const bool on_trial = rails_[rail].state == RailState::trial && rails_[rail].inflight_count == 0;
    if (on_trial || rails_.wants_probe(rail, now_us)) {
      return Choice{.rail = rail, .length = std::min(wanted.remaining, shortest)};
    }
  }
  return std::nullopt;
}

// The rail on which it would be applied soonest. If that one has no room now, another may take it, unless it would end
// after all that waits: then it is sooner to wait.
std::optional<TransferPlan::Choice> TransferPlan::choose_soonest(const Wanted& wanted, std::uint64_t now_us) const {
  std::optional<Choice> found;
  std::uint64_t soonest_us = never_us;
  bool any_up = false;
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) { any_up |= rails_[rail].state == RailState::up; }
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    const RailRecord& record = rails_[rail];
    if (record.state != RailState::up && (any_up || record.state != RailState::trial)) { continue; }
    Choice choice{.rail = rail, .length = wanted.remaining};
    if (wanted.whole_bytes == 0) {
      choice.length = slice_length(limits_.slices, wanted.remaining, record.bytes_per_second);
    }
    choice.predicted_us = rails_.predicted_us(rail, std::max(wanted.whole_bytes, choice.length));
    soonest_us = std::min(soonest_us, choice.predicted_us);
    if (found && found->predicted_us <= choice.predicted_us) { continue; }
    if (has_room(rail, wanted, choice.length, now_us)) { found = choice; }
  }
  if (found && found->predicted_us > soonest_us && found->predicted_us > backlog_us(wanted.priority)) {
    return std::nullopt;
  }
  return found;
}

bool TransferPlan::has_room(RailIndex rail, const Wanted& wanted, std::uint64_t length, std::uint64_t now_us) const {
  const RailRecord& record = rails_[rail];
  if (record.inflight_count == 0) { return true; }
  if (record.state != RailState::up || record.inflight_count >= limits_.slices.window_count_max) { return false; }
  const bool beside = latency_us_ != 0 && now_us - latency_us_ < limits_.slices.quiet_us;
  std::uint32_t quarters = quarters_usual;
  if (wanted.priority == Priority::latency || wanted.promoted) {
    quarters = quarters_first;
  } else if (beside) {
    quarters = wanted.priority == Priority::bulk ? quarters_bulk_beside : quarters_beside;
  }
  return record.inflight_bytes + length <= window_bytes(limits_.slices, record.bytes_per_second, quarters);
}

// When everything under way and everything that waits at this priority and above would be applied, if it were spread.
std::uint64_t TransferPlan::backlog_us(Priority priority) const {
  std::uint64_t bytes = 0, bytes_per_second = 0;
  for (std::size_t which = 0; which <= static_cast<std::size_t>(priority); ++which) { bytes += pending_bytes_[which]; }
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    if (rails_[rail].state != RailState::up) { continue; }
    bytes += rails_[rail].inflight_bytes;
    bytes_per_second += rails_[rail].bytes_per_second;
  }
  if (bytes_per_second == 0) { return never_us; }
  // In milliseconds first: a product of bytes and microseconds might not fit.
  return bytes / (bytes_per_second / 1'000 + 1) * 1'000;
}

std::vector<RailIndex> TransferPlan::stalled(std::uint64_t now_us) {
  const std::uint64_t every_us = limits_.rails.stall_us_min / looks_per_stall;
  if (look_at_us_ != never_us && now_us - looked_us_ > looks_per_stall * every_us / 2 + every_us) {
    rails_.excuse_all(now_us);  // we slept: what did not move was not seen to move
    excused_us_ = now_us;
  }
  std::vector<RailIndex> stalled;
  bool anything_under_way = false;
  for (RailIndex rail = 0; rail < rails_.count(); ++rail) {
    if (rails_[rail].inflight_count == 0) { continue; }
    if (rails_.stalled(rail, now_us) || is_late(rail, now_us)) { stalled.push_back(rail); }
    anything_under_way = true;
  }
  looked_us_ = now_us;
  look_at_us_ = anything_under_way ? now_us + every_us : never_us;
  return stalled;
}

// It trickles: its oldest slice takes many times what was predicted, and another rail, which has brought something to
// an end meanwhile, would have moved it many times over.
bool TransferPlan::is_late(RailIndex rail, std::uint64_t now_us) const {
  Slot oldest = sent_on_[rail];
  while (sent_[oldest].link.after != no_slot) { oldest = sent_[oldest].link.after; }
  const Sent& sent = sent_[oldest];
  const std::uint64_t age_us = now_us - std::max(sent.started_us, std::min(excused_us_, now_us));
  const std::uint64_t factor = limits_.rails.stall_factor;
  if (age_us <= std::max(limits_.rails.stall_us_min, factor * sent.predicted_us)) { return false; }
  for (RailIndex other = 0; other < rails_.count(); ++other) {
    const RailRecord& record = rails_[other];
    if (other == rail || record.state != RailState::up || record.finished_us <= sent.started_us) { continue; }
    if (factor * rails_.completion_us(other, sent.part.length) < age_us) { return true; }
  }
  return false;
}

}  // namespace moonpool
