// Rails in a simulated world with a clock of its own: each carries its slices one after the other at its bandwidth.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "core/transfer_plan.hpp"

namespace moonpool::test {

struct WorldRail {
  std::uint64_t bytes_per_second = 125'000'000;
  std::uint64_t latency_us = 100;
  std::uint64_t cut_from_us = never_us;  // nothing moves from then ...
  std::uint64_t cut_until_us = never_us;  // ... until then
};

// Drives a plan as a driver would.
class RailWorld {
 public:
  RailWorld(const PlanLimits& limits, std::vector<WorldRail> rails) : plan(limits), rails_(std::move(rails)) {
    queues_.resize(rails_.size());
    moved_bytes.resize(rails_.size());
    moved_since_heal.resize(rails_.size());
    for (const WorldRail& rail : rails_) { (void)plan.add_rail({.nominal_bytes_per_second = rail.bytes_per_second}); }
  }

  TransferId add(std::uint64_t length, Priority priority = Priority::normal, std::uint64_t deadline_ms = 60'000) {
    const PlannedOperation operation{.length = length, .write = writes};
    const std::optional<TransferId> id =
        plan.add(std::span(&operation, 1), {.priority = priority, .deadline_us = now_us + deadline_ms * 1'000}, now_us);
    added_us[*id] = now_us;
    return *id;
  }

  // Until nothing is left to do, or the clock says so.
  void run(std::uint64_t until_us = never_us) {
    while (step(until_us)) {}
  }

  TransferPlan plan;
  std::uint64_t now_us = 1'000'000;
  bool writes = true;
  bool peer_acknowledges_drops = true;
  std::vector<std::uint64_t> moved_bytes, moved_since_heal;
  std::vector<PlannedSlice> sent;
  std::map<TransferId, std::uint64_t> added_us, ended_us;
  std::map<TransferId, TransferResult> results;
  std::string fault;

 private:
  struct Moving {
    PlannedSlice slice;
    std::uint64_t ends_us = 0;
  };

  [[nodiscard]] bool is_cut(std::size_t rail) const {
    return now_us >= rails_[rail].cut_from_us && now_us < rails_[rail].cut_until_us;
  }

  bool step(std::uint64_t until_us) {
    act();
    std::uint64_t next_us = plan.wake_at_us();
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      if (!queues_[rail].empty() && !is_cut(rail)) { next_us = std::min(next_us, queues_[rail].front().ends_us); }
    }
    if (next_us == never_us || next_us > until_us) {
      now_us = std::max(now_us, next_us == never_us ? now_us : until_us);
      return false;
    }
    now_us = std::max(now_us, next_us);
    return true;
  }

  void act() {
    for (RailIndex rail = 0; rail < rails_.size(); ++rail) { move(rail); }
    for (const RailIndex rail : plan.stalled(now_us)) { lose(rail); }
    (void)plan.expire(now_us);
    for (const RailIndex rail : plan.rails_to_connect(now_us)) {
      plan.connecting(rail);
      is_cut(rail) ? plan.failed(rail, now_us) : plan.connected(rail, ++last_connection_, now_us);
    }
    if (peer_acknowledges_drops && plan.rails().any_usable()) {
      const std::vector<std::uint64_t> owed = plan.drops_owed();
      for (const std::uint64_t connection : owed) { plan.dropped(connection); }
    }
    while (const std::optional<PlannedSlice> slice = plan.next(now_us)) { queue(*slice); }
    for (TransferResult& result : plan.take_done()) {
      ended_us[result.transfer] = now_us;
      results[result.transfer] = std::move(result);
    }
    if (std::string found = plan.check_integrity(); fault.empty()) { fault = found; }
  }

  void move(RailIndex rail) {
    std::deque<Moving>& queue = queues_[rail];
    while (!queue.empty() && !is_cut(rail) && queue.front().ends_us <= now_us) {
      const PlannedSlice slice = queue.front().slice;
      queue.pop_front();
      moved_bytes[rail] += slice.length;
      if (now_us >= rails_[rail].cut_until_us) { moved_since_heal[rail] += slice.length; }
      plan.finished(slice.slice, now_us);
    }
  }

  void lose(RailIndex rail) {
    queues_[rail].clear();
    plan.failed(rail, now_us);
  }

  void queue(const PlannedSlice& slice) {
    const WorldRail& rail = rails_[slice.rail];
    const std::uint64_t moving_us = slice.length * 1'000'000 / rail.bytes_per_second;
    std::deque<Moving>& queue = queues_[slice.rail];
    const std::uint64_t begins_us = queue.empty() ? now_us + rail.latency_us : queue.back().ends_us;
    queue.push_back({slice, begins_us + moving_us});
    sent.push_back(slice);
  }

  std::vector<WorldRail> rails_;
  std::vector<std::deque<Moving>> queues_;
  std::uint64_t last_connection_ = 0;
};

}  // namespace moonpool::test
