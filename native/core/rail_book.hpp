// What is known about each rail to one peer: its measured bandwidth and latency, what is under way on it, whether it
// may be used, and when it is tried again. Whole numbers only, so that the model in tests/models says the same.
#pragma once

#include "core/types.hpp"

namespace moonpool {

using RailIndex = std::uint32_t;
inline constexpr std::uint64_t never_us = std::numeric_limits<std::uint64_t>::max();

struct RailTraits {
  std::uint64_t nominal_bytes_per_second = 0;  // of the link; 0: unknown
  std::uint32_t locality_permille = 1000;      // factor on predicted times: 1000 near, more is farther
};

struct RailBookLimits {
  std::uint64_t guess_bytes_per_second = 1'000'000'000;  // of a rail with no nominal, before anything was measured
  std::uint64_t smoothing_us = 50'000;  // a measurement over so much busy time weighs as much as all before it
  std::uint64_t sample_bytes_min = 128U << 10U;  // fewer bytes measure latency, not bandwidth
  std::uint64_t nominal_divisor = 256;           // the estimate stays within nominal / divisor ...
  std::uint64_t nominal_factor = 8;              // ... and nominal * factor
  std::uint64_t stall_us_min = 300'000;
  std::uint64_t stall_factor = 8;  // stalled: no progress for so many times the predicted time of what is under way
  std::uint64_t pause_us_min = 100'000;  // after the first failure; doubled by each that follows
  std::uint64_t pause_us_max = 2'000'000;
  std::uint64_t pause_lonely_us_max = 250'000;  // while no other rail is connected
  std::uint64_t alone_factor = 4;  // the only rail counts as stalled after so much longer: there is nothing to go to
  std::uint64_t probe_every_us = 1'000'000;  // an idle rail's estimate is that old: measure it again
};

enum class RailState : std::uint8_t {
  paused = 0,  // not connected; to be connected from connect_at_us on
  connecting = 1,  // the driver is at it
  trial = 2,  // connected after a failure: one slice at a time, until one has gone through
  up = 3,
};

struct RailRecord {
  RailTraits traits;
  RailState state = RailState::paused;
  std::uint64_t connection = 0;  // the driver's name of the connection, while connected
  std::uint64_t bytes_per_second = 1;  // predicted
  std::uint64_t latency_us = 0;  // of an operation of no length, smoothed
  std::uint64_t inflight_bytes = 0;
  std::uint64_t inflight_count = 0;
  std::uint64_t progress_us = 0;  // when a byte last moved, or work came to an idle rail
  std::uint64_t busy_since_us = 0;  // busy_bytes were finished since then, without a moment of idleness
  std::uint64_t busy_bytes = 0;
  bool busy_run_is_fresh = true;  // nothing was measured since the rail was last idle
  std::uint64_t measured_us = 0;  // when the bandwidth was last measured; 0: never
  std::uint64_t finished_us = 0;  // when a slice last went through; 0: never
  std::uint64_t connected_us = 0;  // since when, while connected
  std::uint64_t paused_us = 0;  // since when, while paused
  std::uint64_t pause_us = 0;  // the last pause; 0: none yet
  std::uint64_t finished_bytes = 0, finished_count = 0;
  std::uint64_t failure_count = 0;
  std::uint32_t failures_in_row = 0;  // without a slice gone through in between
  std::uint32_t connect_failures_in_row = 0;
};

class RailBook {
 public:
  explicit RailBook(RailBookLimits limits) : limits_(limits) {}
  RailIndex add(const RailTraits& traits);
  [[nodiscard]] std::size_t count() const { return rails_.size(); }
  [[nodiscard]] const RailRecord& operator[](RailIndex rail) const { return rails_[rail]; }

  void connecting(RailIndex rail);
  void connected(RailIndex rail, std::uint64_t connection, std::uint64_t now_us);
  // Its connection is lost or could not be made. Nothing is under way on it any more.
  void failed(RailIndex rail, std::uint64_t now_us);

  void started(RailIndex rail, std::uint64_t length, std::uint64_t now_us);
  void progressed(RailIndex rail, std::uint64_t now_us) { rails_[rail].progress_us = now_us; }
  // A slice of `length` that was started at started_us is applied.
  void finished(RailIndex rail, std::uint64_t length, std::uint64_t started_us, std::uint64_t now_us);
  // Who asks for a connection by name gets a try at once.
  void forget_failures();
  // It was not sent at all.
  void withdrawn(RailIndex rail, std::uint64_t length);
  // It ended without having been moved: nothing is measured, but the rail works.
  void refused(RailIndex rail, std::uint64_t length, std::uint64_t now_us);

  // Connected.
  [[nodiscard]] bool usable(RailIndex rail) const { return rails_[rail].state >= RailState::trial; }
  [[nodiscard]] bool any_usable() const;
  // Nothing is connected or being connected, and connecting has failed so many times in a row for every rail.
  [[nodiscard]] bool hopeless(std::uint32_t connect_failures_in_row) const;
  // In how many µs length more bytes would be applied.
  [[nodiscard]] std::uint64_t completion_us(RailIndex rail, std::uint64_t length) const;
  // The same times the locality: what rails are compared by.
  [[nodiscard]] std::uint64_t predicted_us(RailIndex rail, std::uint64_t length) const;
  // Idle for so long that its estimate says little.
  [[nodiscard]] bool wants_probe(RailIndex rail, std::uint64_t now_us) const;
  // When it counts as stalled if nothing moves until then; never_us while nothing is under way.
  [[nodiscard]] std::uint64_t stalls_at_us(RailIndex rail) const;
  // Nothing moved for so long. Whoever asks has been awake all that time.
  [[nodiscard]] bool stalled(RailIndex rail, std::uint64_t now_us) const { return now_us >= stalls_at_us(rail); }
  // We did not look for a while: nobody is accused of what moved unseen.
  void excuse_all(std::uint64_t now_us);
  // When to connect it; never_us unless it is paused.
  [[nodiscard]] std::uint64_t connect_at_us(RailIndex rail) const;
  [[nodiscard]] const RailBookLimits& limits() const { return limits_; }
  [[nodiscard]] std::string check_integrity() const;

 private:
  static void end(RailRecord& rail, std::uint64_t length, std::uint64_t now_us);
  void measure_bandwidth(RailRecord& rail, std::uint64_t now_us) const;
  void measure_latency(RailRecord& rail, std::uint64_t length, std::uint64_t taken_us) const;
  [[nodiscard]] std::uint64_t bounded(const RailRecord& rail, std::uint64_t bytes_per_second) const;

  RailBookLimits limits_;
  std::vector<RailRecord> rails_;
};

}  // namespace moonpool
