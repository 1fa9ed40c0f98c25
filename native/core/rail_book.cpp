#include "core/rail_book.hpp"

#include <algorithm>

namespace moonpool {

namespace {

constexpr std::uint64_t second_us = 1'000'000;
constexpr std::uint64_t bytes_per_second_max = 1ULL << 40U;  // keeps every product below within 64 bits
constexpr std::uint64_t latency_weight = 8;                  // of what was known, against one new value
constexpr std::uint64_t healthy_pauses = 4;  // up for so many of its last pauses: the next one is short again

std::uint64_t taken_us(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  return bytes * second_us / bytes_per_second;
}

}  // namespace

RailIndex RailBook::add(const RailTraits& traits) {
  RailRecord& rail = rails_.emplace_back();
  rail.traits = traits;
  const std::uint64_t nominal = traits.nominal_bytes_per_second;
  rail.bytes_per_second = bounded(rail, nominal != 0 ? nominal : limits_.guess_bytes_per_second);
  return static_cast<RailIndex>(rails_.size() - 1);
}

void RailBook::connecting(RailIndex rail) { rails_[rail].state = RailState::connecting; }

void RailBook::connected(RailIndex rail, std::uint64_t connection, std::uint64_t now_us) {
  RailRecord& record = rails_[rail];
  record.state = record.failures_in_row == 0 ? RailState::up : RailState::trial;
  record.connection = connection;
  record.connect_failures_in_row = 0;
  record.connected_us = now_us;
  record.progress_us = now_us;
}

void RailBook::failed(RailIndex rail, std::uint64_t now_us) {
  RailRecord& record = rails_[rail];
  const bool was_healthy =
      usable(rail) && record.failures_in_row == 0 && now_us - record.connected_us >= healthy_pauses * record.pause_us;
  record.pause_us =
      was_healthy || record.pause_us == 0 ? limits_.pause_us_min : std::min(2 * record.pause_us, limits_.pause_us_max);
  record.connect_failures_in_row += usable(rail) ? 0 : 1;
  record.state = RailState::paused;
  record.paused_us = now_us;
  record.inflight_bytes = 0;
  record.inflight_count = 0;
  ++record.failure_count;
  ++record.failures_in_row;
}

void RailBook::started(RailIndex rail, std::uint64_t length, std::uint64_t now_us) {
  RailRecord& record = rails_[rail];
  if (record.inflight_count == 0) {
    record.progress_us = now_us;
    record.busy_since_us = now_us;
    record.busy_bytes = 0;
    record.busy_run_is_fresh = true;
  }
  record.inflight_bytes += length;
  ++record.inflight_count;
}

void RailBook::finished(RailIndex rail, std::uint64_t length, std::uint64_t started_us, std::uint64_t now_us) {
  RailRecord& record = rails_[rail];
  end(record, length, now_us);
  record.finished_us = now_us;
  record.finished_bytes += length;
  ++record.finished_count;
  record.busy_bytes += length;
  const bool alone = record.busy_run_is_fresh && record.busy_bytes == length && record.inflight_count == 0;
  if (record.busy_bytes >= limits_.sample_bytes_min) {
    measure_bandwidth(record, now_us);
  } else if (alone) {
    measure_latency(record, length, now_us - started_us);
  }
}

void RailBook::forget_failures() {
  for (RailRecord& rail : rails_) {
    if (rail.state != RailState::paused) { continue; }
    rail.pause_us = 0;
    rail.connect_failures_in_row = 0;
  }
}

void RailBook::withdrawn(RailIndex rail, std::uint64_t length) {
  rails_[rail].inflight_bytes -= length;
  --rails_[rail].inflight_count;
}

void RailBook::refused(RailIndex rail, std::uint64_t length, std::uint64_t now_us) {
  RailRecord& record = rails_[rail];
  end(record, length, now_us);
  record.busy_since_us = now_us;
  record.busy_bytes = 0;
}

void RailBook::end(RailRecord& rail, std::uint64_t length, std::uint64_t now_us) {
  rail.inflight_bytes -= length;
  --rail.inflight_count;
  rail.progress_us = now_us;
  rail.failures_in_row = 0;
  rail.state = RailState::up;
}

// Bytes over the time they took, and each measurement weighs by that time: so the mean is bytes per time however the
// moments of finishing are bunched, and an estimate grows old with time, not with the number of slices.
void RailBook::measure_bandwidth(RailRecord& rail, std::uint64_t now_us) const {
  const std::uint64_t waited_us = rail.busy_run_is_fresh ? rail.latency_us : 0;
  const std::uint64_t elapsed_us = now_us - rail.busy_since_us;
  const std::uint64_t busy_us = std::max<std::uint64_t>(1, elapsed_us - std::min(elapsed_us, waited_us));
  const std::uint64_t known_us = rail.measured_us == 0 ? 0 : limits_.smoothing_us;
  const std::uint64_t moved = rail.bytes_per_second * known_us + rail.busy_bytes * second_us;
  rail.bytes_per_second = bounded(rail, moved / (known_us + busy_us));
  rail.measured_us = now_us;
  rail.busy_since_us = now_us;
  rail.busy_bytes = 0;
  rail.busy_run_is_fresh = false;
}

void RailBook::measure_latency(RailRecord& rail, std::uint64_t length, std::uint64_t elapsed_us) const {
  const std::uint64_t moving_us = taken_us(length, rail.bytes_per_second);
  const std::uint64_t latency_us = elapsed_us - std::min(elapsed_us, moving_us);
  rail.latency_us =
      rail.latency_us == 0 ? latency_us : (rail.latency_us * (latency_weight - 1) + latency_us) / latency_weight;
}

std::uint64_t RailBook::bounded(const RailRecord& rail, std::uint64_t bytes_per_second) const {
  const std::uint64_t nominal = std::min(rail.traits.nominal_bytes_per_second, bytes_per_second_max);
  const std::uint64_t lowest = std::max<std::uint64_t>(1, nominal / limits_.nominal_divisor);
  const std::uint64_t highest =
      nominal == 0 ? bytes_per_second_max : std::min(nominal * limits_.nominal_factor, bytes_per_second_max);
  return std::clamp(bytes_per_second, lowest, std::max(lowest, highest));
}

bool RailBook::any_usable() const {
  return std::any_of(rails_.begin(), rails_.end(),
                     [](const RailRecord& rail) { return rail.state >= RailState::trial; });
}

bool RailBook::hopeless(std::uint32_t connect_failures_in_row) const {
  return std::all_of(rails_.begin(), rails_.end(), [&](const RailRecord& rail) {
    return rail.state == RailState::paused && rail.connect_failures_in_row >= connect_failures_in_row;
  });
}

std::uint64_t RailBook::completion_us(RailIndex rail, std::uint64_t length) const {
  const RailRecord& record = rails_[rail];
  return record.latency_us + taken_us(record.inflight_bytes + length, record.bytes_per_second);
}

std::uint64_t RailBook::predicted_us(RailIndex rail, std::uint64_t length) const {
  return completion_us(rail, length) * rails_[rail].traits.locality_permille / 1'000;
}

bool RailBook::wants_probe(RailIndex rail, std::uint64_t now_us) const {
  const RailRecord& record = rails_[rail];
  return record.state == RailState::up && record.inflight_count == 0 &&
         now_us - std::max(record.finished_us, record.connected_us) >= limits_.probe_every_us;
}

std::uint64_t RailBook::stalls_at_us(RailIndex rail) const {
  const RailRecord& record = rails_[rail];
  if (record.inflight_count == 0) { return never_us; }
  const auto others = std::count_if(rails_.begin(), rails_.end(),
                                    [](const RailRecord& other) { return other.state == RailState::up; }) -
                      (record.state == RailState::up ? 1 : 0);
  const std::uint64_t patience_us = std::max(limits_.stall_us_min, limits_.stall_factor * completion_us(rail, 0));
  return record.progress_us + patience_us * (others > 0 ? 1 : limits_.alone_factor);
}

void RailBook::excuse_all(std::uint64_t now_us) {
  for (RailRecord& rail : rails_) { rail.progress_us = std::max(rail.progress_us, now_us); }
}

std::uint64_t RailBook::connect_at_us(RailIndex rail) const {
  const RailRecord& record = rails_[rail];
  if (record.state != RailState::paused) { return never_us; }
  const std::uint64_t longest_us = any_usable() ? limits_.pause_us_max : limits_.pause_lonely_us_max;
  return record.paused_us + std::min(record.pause_us, longest_us);
}

std::string RailBook::check_integrity() const {
  for (const RailRecord& rail : rails_) {
    if (rail.bytes_per_second != bounded(rail, rail.bytes_per_second)) { return "a bandwidth out of its bounds"; }
    if (rail.inflight_count == 0 && rail.inflight_bytes != 0) { return "bytes under way without a slice"; }
    if (rail.state < RailState::trial && rail.inflight_count != 0) { return "slices on a rail that is not connected"; }
    if (rail.pause_us > limits_.pause_us_max) { return "a pause longer than the longest"; }
    if (rail.state == RailState::trial && rail.failures_in_row == 0) { return "a rail on trial that never failed"; }
  }
  return {};
}

}  // namespace moonpool
