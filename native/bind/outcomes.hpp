// Results of batches as Python sees them: parallel lists, made once.
#pragma once

#include <nanobind/nanobind.h>

#include "io/node_client.hpp"

namespace moonpool {

struct PutOutcome {
  nanobind::list statuses, reasons, lengths, checksums, generations;
  std::uint64_t incarnation = 0;
};

struct ReadOutcome {
  nanobind::list statuses, reasons, lengths, checksums, generations;
  std::uint64_t byte_count = 0;
};

struct MatchOutcome {
  std::uint32_t fetchable = 0;
  nanobind::list holders;
  bool warming = false;
  bool reachable = false;
};

// With the GIL.
[[nodiscard]] PutOutcome outcome_of(const PutReport& report);
[[nodiscard]] ReadOutcome outcome_of(const ReadReport& report);
[[nodiscard]] MatchOutcome outcome_of(const MatchReport& report);

void bind_outcomes(nanobind::module_& module);

}  // namespace moonpool
