#include "bind/outcomes.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

template <class Items, class Member>
nb::list column(const Items& items, Member member) {
  nb::list result = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(items.size())));
  Py_ssize_t index = 0;
  for (const auto& item : items) {
    const auto value = static_cast<unsigned long long>(item.*member);
    PyList_SET_ITEM(result.ptr(), index++, PyLong_FromUnsignedLongLong(value));
  }
  return result;
}

template <class Outcome, class Item>
void fill(Outcome& outcome, const std::vector<Item>& items) {
  outcome.statuses = column(items, &Item::status);
  outcome.reasons = column(items, &Item::reason);
  outcome.lengths = column(items, &Item::length);
  outcome.checksums = column(items, &Item::checksum);
  outcome.generations = column(items, &Item::generation);
}

}  // namespace

PutOutcome outcome_of(const PutReport& report) {
  PutOutcome outcome;
  fill(outcome, report.items);
  outcome.incarnation = report.incarnation;
  return outcome;
}

ReadOutcome outcome_of(const ReadReport& report) {
  ReadOutcome outcome;
  fill(outcome, report.items);
  outcome.byte_count = report.byte_count;
  return outcome;
}

MatchOutcome outcome_of(const MatchReport& report) {
  MatchOutcome outcome;
  outcome.fetchable = report.fetchable;
  outcome.warming = report.warming;
  outcome.reachable = report.reachable;
  for (const MatchedHolder& holder : report.holders) {
    outcome.holders.append(nb::make_tuple(nb::str(holder.name.data(), holder.name.size()), holder.incarnation,
                                          holder.block_count, static_cast<unsigned>(holder.tier_mask)));
  }
  return outcome;
}

void bind_outcomes(nb::module_& module) {
  nb::class_<PutOutcome>(module, "PutOutcome", nb::is_final())
      .def_ro("statuses", &PutOutcome::statuses)
      .def_ro("reasons", &PutOutcome::reasons)
      .def_ro("lengths", &PutOutcome::lengths)
      .def_ro("checksums", &PutOutcome::checksums)
      .def_ro("generations", &PutOutcome::generations)
      .def_ro("incarnation", &PutOutcome::incarnation);
  nb::class_<ReadOutcome>(module, "ReadOutcome", nb::is_final())
      .def_ro("statuses", &ReadOutcome::statuses)
      .def_ro("reasons", &ReadOutcome::reasons)
      .def_ro("lengths", &ReadOutcome::lengths)
      .def_ro("checksums", &ReadOutcome::checksums)
      .def_ro("generations", &ReadOutcome::generations)
      .def_ro("byte_count", &ReadOutcome::byte_count);
  nb::class_<MatchOutcome>(module, "MatchOutcome", nb::is_final())
      .def_ro("fetchable", &MatchOutcome::fetchable)
      .def_ro("holders", &MatchOutcome::holders)
      .def_ro("warming", &MatchOutcome::warming)
      .def_ro("reachable", &MatchOutcome::reachable);
}

}  // namespace moonpool
