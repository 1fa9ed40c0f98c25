#include "bind/outcomes.hpp"

#include <algorithm>

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

// The five columns that both kinds of outcome have.
template <class Outcome, class Item>
void bind_columns(nb::class_<Outcome>& face) {
  face.def("__len__", [](const Outcome& self) { return self.report.items.size(); })
      .def_ro("worked_count", &Outcome::worked_count)
      .def_prop_ro("statuses", [](const Outcome& self) { return column(self.report.items, &Item::status); })
      .def_prop_ro("reasons", [](const Outcome& self) { return column(self.report.items, &Item::reason); })
      .def_prop_ro("lengths", [](const Outcome& self) { return column(self.report.items, &Item::length); })
      .def_prop_ro("checksums", [](const Outcome& self) { return column(self.report.items, &Item::checksum); })
      .def_prop_ro("generations", [](const Outcome& self) { return column(self.report.items, &Item::generation); });
}

template <class Report>
std::size_t count_of(const Report& report, Status first, Status second) {
  return static_cast<std::size_t>(std::count_if(report.items.begin(), report.items.end(), [&](const auto& item) {
    return item.status == first || item.status == second;
  }));
}

}  // namespace

PutOutcome outcome_of(PutReport report) {
  const std::size_t worked_count = count_of(report, Status::stored, Status::present);
  return {std::move(report), worked_count};
}

ReadOutcome outcome_of(ReadReport report) {
  const std::size_t worked_count = count_of(report, Status::hit, Status::done);
  return {std::move(report), worked_count};
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
  nb::class_<PutOutcome> put(module, "PutOutcome", nb::is_final());
  bind_columns<PutOutcome, KeyPut>(put);
  put.def_prop_ro("incarnation", [](const PutOutcome& self) { return self.report.incarnation; });
  nb::class_<ReadOutcome> read(module, "ReadOutcome", nb::is_final());
  bind_columns<ReadOutcome, KeyRead>(read);
  read.def_prop_ro("byte_count", [](const ReadOutcome& self) { return self.report.byte_count; });
  nb::class_<MatchOutcome>(module, "MatchOutcome", nb::is_final())
      .def_ro("fetchable", &MatchOutcome::fetchable)
      .def_ro("holders", &MatchOutcome::holders)
      .def_ro("warming", &MatchOutcome::warming)
      .def_ro("reachable", &MatchOutcome::reachable);
}

}  // namespace moonpool
