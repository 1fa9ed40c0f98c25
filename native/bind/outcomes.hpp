// Results of batches as Python sees them: parallel lists, each made when it is asked for. Most callers only want to
// know whether all worked.
#pragma once

#include <nanobind/nanobind.h>

#include "io/node_client.hpp"

namespace moonpool {

struct PutOutcome {
  PutReport report;
  std::size_t worked_count = 0;  // stored or present
};

struct ReadOutcome {
  ReadReport report;
  std::size_t worked_count = 0;  // hit or done
};

struct MatchOutcome {
  std::uint32_t fetchable = 0;
  nanobind::list holders;
  bool warming = false;
  bool reachable = false;
};

[[nodiscard]] PutOutcome outcome_of(PutReport report);
[[nodiscard]] ReadOutcome outcome_of(ReadReport report);
// With the GIL.
[[nodiscard]] MatchOutcome outcome_of(const MatchReport& report);

void bind_outcomes(nanobind::module_& module);

}  // namespace moonpool
