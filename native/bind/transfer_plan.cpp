#include "core/transfer_plan.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/binders.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

nb::dict dict_of(const PlannedSlice& slice) {
  nb::dict result;
  result["slice"] = slice.slice;
  result["transfer"] = slice.transfer;
  result["rail"] = slice.rail;
  result["operation"] = slice.operation;
  result["offset"] = slice.offset;
  result["length"] = slice.length;
  result["attempt"] = slice.attempt;
  result["write"] = slice.write;
  return result;
}

nb::dict dict_of(const TransferResult& ended) {
  nb::list operations, unapplied;
  for (const OperationResult& operation : ended.operations) {
    operations.append(nb::make_tuple(static_cast<int>(operation.reason), operation.may_be_applied_later));
  }
  for (const UnappliedPart& part : ended.unapplied) {
    unapplied.append(nb::make_tuple(part.operation, part.offset, part.length));
  }
  nb::dict result;
  result["transfer"] = ended.transfer;
  result["operations"] = operations;
  result["unapplied"] = unapplied;
  return result;
}

nb::dict dict_of(const RailRecord& rail) {
  nb::dict result;
  result["state"] = static_cast<int>(rail.state);
  result["connection"] = rail.connection;
  result["bytes_per_second"] = rail.bytes_per_second;
  result["latency_us"] = rail.latency_us;
  result["inflight_bytes"] = rail.inflight_bytes;
  result["inflight_count"] = rail.inflight_count;
  result["pause_us"] = rail.pause_us;
  result["failure_count"] = rail.failure_count;
  return result;
}

template <typename Value>
nb::list list_of(const std::vector<Value>& values) {
  nb::list result;
  for (const Value& value : values) { result.append(dict_of(value)); }
  return result;
}

using Operations = std::vector<std::pair<std::uint64_t, bool>>;  // (length, write)

std::optional<TransferId> add(TransferPlan& plan, const Operations& operations, int priority, std::uint64_t deadline_us,
                              std::uint64_t now_us) {
  std::vector<PlannedOperation> planned;
  for (const auto& [length, write] : operations) { planned.push_back({.length = length, .write = write}); }
  return plan.add(planned, {.priority = static_cast<Priority>(priority), .deadline_us = deadline_us}, now_us);
}

}  // namespace

void bind_transfer_plan(nb::module_& module) {
  nb::class_<TransferPlan>(module, "TransferPlan", nb::is_final())
      .def(nb::init<>())
      .def(
          "add_rail",
          [](TransferPlan& plan, std::uint64_t nominal, std::uint32_t permille) {
            return plan.add_rail({nominal, permille});
          },
          nb::arg("nominal_bytes_per_second") = 0, nb::arg("locality_permille") = 1'000)
      .def("rail", [](const TransferPlan& plan, RailIndex rail) { return dict_of(plan.rails()[rail]); })
      .def("predicted_us", [](const TransferPlan& plan, RailIndex rail,
                              std::uint64_t length) { return plan.rails().predicted_us(rail, length); })
      .def("connect_at_us", [](const TransferPlan& plan, RailIndex rail) { return plan.rails().connect_at_us(rail); })
      .def("rails_to_connect", &TransferPlan::rails_to_connect, nb::arg("now_us"))
      .def("connecting", &TransferPlan::connecting, nb::arg("rail"))
      .def("connected", &TransferPlan::connected, nb::arg("rail"), nb::arg("connection"), nb::arg("now_us"))
      .def("failed", &TransferPlan::failed, nb::arg("rail"), nb::arg("now_us"))
      .def("drops_owed", &TransferPlan::drops_owed)
      .def("dropped", &TransferPlan::dropped, nb::arg("connection"))
      .def("add", &add, nb::arg("operations"), nb::arg("priority"), nb::arg("deadline_us"), nb::arg("now_us"))
      .def("give_up", [](TransferPlan& plan, TransferId transfer,
                         int reason) { return list_of(plan.give_up(transfer, static_cast<Reason>(reason))); })
      .def("expire", [](TransferPlan& plan, std::uint64_t now_us) { return list_of(plan.expire(now_us)); })
      .def("next",
           [](TransferPlan& plan, std::uint64_t now_us) {
             const std::optional<PlannedSlice> slice = plan.next(now_us);
             return slice ? nb::object(dict_of(*slice)) : nb::none();
           })
      .def("finished", &TransferPlan::finished, nb::arg("slice"), nb::arg("now_us"))
      .def("refused", [](TransferPlan& plan, SliceId slice, int reason,
                         std::uint64_t now_us) { plan.refused(slice, static_cast<Reason>(reason), now_us); })
      .def("withdrawn", &TransferPlan::withdrawn, nb::arg("slice"))
      .def("stalled", &TransferPlan::stalled, nb::arg("now_us"))
      .def("wake_at_us", &TransferPlan::wake_at_us)
      .def("take_done", [](TransferPlan& plan) { return list_of(plan.take_done()); })
      .def("check_integrity", &TransferPlan::check_integrity);
}

}  // namespace moonpool
