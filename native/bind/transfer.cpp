#include "bind/transfer.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bind/numbers.hpp"
#include "bind/peer_face.hpp"
#include "io/node_options.hpp"
#include "io/transfer_engine.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

// Reasons of what failed, by operation; empty when all was applied.
struct TransferOutcome {
  std::vector<std::tuple<std::size_t, unsigned, bool>> failures;
  std::vector<std::uint32_t> checksums;
  unsigned message_reason = 0;
};

Digest token_of(const nb::bytes& bytes) {
  Digest token;
  if (bytes.size() != sizeof token) { throw nb::value_error("a token has 16 bytes"); }
  std::memcpy(&token.low, bytes.data(), sizeof token.low);
  std::memcpy(&token.high, static_cast<const std::byte*>(bytes.data()) + sizeof token.low, sizeof token.high);
  return token;
}

nb::bytes bytes_of(const Digest& token) {
  std::array<char, sizeof token> bytes{};
  std::memcpy(bytes.data(), &token.low, sizeof token.low);
  std::memcpy(bytes.data() + sizeof token.low, &token.high, sizeof token.high);
  return nb::bytes(bytes.data(), bytes.size());
}

// (write, token, bytes of the remote region, may it be written, offsets, local addresses, lengths)
void append_operations(nb::handle item, std::vector<TransferOperation>& into) {
  const auto fields = nb::cast<nb::tuple>(item);
  if (fields.size() != 7) { throw nb::value_error("an item has seven fields"); }
  TransferOperation operation;
  operation.write = nb::cast<bool>(fields[0]);
  operation.remote = {token_of(nb::cast<nb::bytes>(fields[1])), nb::cast<std::uint64_t>(fields[2]),
                      nb::cast<bool>(fields[3])};
  const Numbers offsets(fields[4], "offsets");
  const Numbers addresses(fields[5], "addresses");
  const Numbers lengths(fields[6], "lengths");
  const std::size_t count = offsets.values().size();
  if (addresses.values().size() != count || lengths.values().size() != count) {
    throw nb::value_error("offsets, addresses and lengths differ in number");
  }
  into.reserve(into.size() + count);
  for (std::size_t index = 0; index < count; ++index) {
    operation.offset = offsets.values()[index];
    operation.local = {addresses.values()[index], lengths.values()[index]};
    into.push_back(operation);
  }
}

std::vector<TransferOperation> operations_of(nb::handle items) {
  std::vector<TransferOperation> operations;
  for (const nb::handle item : items) { append_operations(item, operations); }
  return operations;
}

RailOrder order_of(unsigned priority, std::uint64_t timeout_ms, const nb::bytes& message) {
  if (priority > static_cast<unsigned>(Priority::bulk)) { throw nb::value_error("a priority is 0, 1 or 2"); }
  RailOrder order;
  order.deadline = Deadline::after_ms(timeout_ms);
  order.priority = static_cast<Priority>(priority);
  order.message = text_of(message);
  return order;
}

TransferOutcome outcome_of(const TransferReport& report, bool checksum) {
  TransferOutcome outcome;
  outcome.message_reason = static_cast<unsigned>(report.message_reason);
  for (std::size_t index = 0; index < report.outcomes.size(); ++index) {
    const RailOutcome& one = report.outcomes[index];
    if (one.reason != Reason::none) {
      outcome.failures.emplace_back(index, static_cast<unsigned>(one.reason), one.may_be_applied_later);
    }
    if (checksum) { outcome.checksums.push_back(one.checksum); }
  }
  return outcome;
}

TransferOutcome run(TransferPeer& peer, nb::handle items, unsigned priority, std::uint64_t timeout_ms,
                    const nb::bytes& message, bool checksum) {
  const std::vector<TransferOperation> operations = operations_of(items);
  RailOrder order = order_of(priority, timeout_ms, message);
  const nb::gil_scoped_release unlocked;
  return outcome_of(peer.run(operations, checksum, std::move(order)), checksum);
}

// The short way for one operation: its reason, and whether it may still be applied.
std::pair<unsigned, bool> run_one(TransferPeer& peer, bool write, const nb::tuple& remote, const nb::tuple& place,
                                  std::uint64_t timeout_ms) {
  TransferOperation operation;
  operation.write = write;
  operation.remote = {token_of(nb::cast<nb::bytes>(remote[0])), nb::cast<std::uint64_t>(remote[1]),
                      nb::cast<bool>(remote[2])};
  operation.offset = nb::cast<std::uint64_t>(place[0]);
  operation.local = {nb::cast<std::uint64_t>(place[1]), nb::cast<std::uint64_t>(place[2])};
  const nb::gil_scoped_release unlocked;
  RailOrder order;
  order.deadline = Deadline::after_ms(timeout_ms);
  order.priority = Priority::latency;
  const RailOutcome outcome = peer.run(std::span(&operation, 1), false, std::move(order)).outcomes.at(0);
  return {static_cast<unsigned>(outcome.reason), outcome.may_be_applied_later};
}

nb::list status_of(TransferPeer& peer) {
  nb::list rails;
  for (const RailStatus& status : peer.rails().status()) {
    nb::dict rail;
    rail["peer"] = status.peer;
    rail["local"] = status.local;
    rail["state"] = status.state;
    rail["inflight_bytes"] = status.inflight_bytes;
    rail["read_bytes"] = status.read_bytes;
    rail["written_bytes"] = status.written_bytes;
    rail["failure_count"] = status.failure_count;
    rail["bytes_per_second"] = status.bytes_per_second;
    rails.append(rail);
  }
  return rails;
}

void set_transfer_limit(TransferLimits& limits, const std::string& name, std::uint64_t value) {
  if (name == "region_count") {
    limits.region_count = value;
  } else if (name == "message_count") {
    limits.message_count = value;
  } else if (name == "transfer_count") {
    limits.transfer_count = value;
  } else if (name == "rail_count") {
    limits.rails.rail_count = static_cast<std::uint32_t>(value);
  } else if (name == "rail_thread_count") {
    limits.rails.thread_count = static_cast<std::uint32_t>(value);
  } else if (name == "silence_ms") {
    limits.rails.silence_ms = value;
  } else if (!set_limit(limits.server, name, value)) {
    throw nb::value_error(("no limit is called " + name).c_str());
  }
}

TransferOptions options_of(const std::string& name, const nb::bytes& secret, const nb::dict& limits) {
  TransferOptions options;
  options.name = name;
  options.secret = secret_from(text_of(secret));
  options.release = MOONPOOL_VERSION;
  if (name.size() > label_bytes_max) { throw nb::value_error("a name has at most 255 bytes"); }
  for (const auto& [limit, value] : limits) {
    set_transfer_limit(options.limits, nb::cast<std::string>(limit), nb::cast<std::uint64_t>(value));
  }
  return options;
}

std::vector<std::string> listen(TransferEngine& engine, const std::vector<std::string>& addresses) {
  std::vector<TcpAddress> parsed;
  for (const std::string& text : addresses) {
    const std::optional<TcpAddress> address = parse_tcp_address(text);
    if (!address) { throw nb::value_error(("'" + text + "' is no host:port").c_str()); }
    parsed.push_back(*address);
  }
  const nb::gil_scoped_release unlocked;
  return engine.listen(std::move(parsed));
}

// (peer, local host or "", nominal bytes per second or 0, locality)
using Routes = std::vector<std::tuple<std::string, std::string, std::uint64_t, std::uint32_t>>;

std::unique_ptr<TransferPeer> make_peer(TransferEngine& engine, const Routes& routes, const nb::bytes& secret,
                                        const std::string& name, const nb::dict& limits) {
  RailOptions options;
  for (const auto& [peer, local, nominal, locality] : routes) {
    options.routes.push_back({peer, local, nominal, locality});
  }
  options.secret = secret_from(text_of(secret));
  options.name = name;
  for (const auto& [limit, value] : limits) {
    const auto key = nb::cast<std::string>(limit);
    const auto number = nb::cast<std::uint64_t>(value);
    if (key == "connect_timeout_ms") {
      options.connect_timeout_ms = number;
    } else if (key == "slice_bytes") {
      options.slice_bytes = number;
    } else if (key == "inflight_bytes") {
      options.inflight_bytes = number;
    } else if (key == "stall_ms") {
      options.stall_ms = number;
    } else {
      throw nb::value_error(("no limit of a peer is called " + key).c_str());
    }
  }
  return engine.peer(std::move(options));
}

nb::object take_message(TransferEngine& engine, std::uint64_t timeout_ms) {
  std::optional<TransferMessage> message;
  {
    const nb::gil_scoped_release unlocked;
    message = engine.inbox().take(Deadline::after_ms(timeout_ms));
  }
  return message ? nb::object(nb::make_tuple(message->from, to_bytes(message->text))) : nb::none();
}

void bind_engine(nb::module_& module) {
  nb::class_<TransferEngine>(module, "TransferEngine", nb::is_final())
      .def(
          "__init__",
          [](TransferEngine* self, const std::string& name, const nb::bytes& secret, const nb::dict& limits) {
            std::construct_at(self, options_of(name, secret, limits));
          },
          nb::kw_only(), nb::arg("name"), nb::arg("secret"), nb::arg("limits"))
      .def(
          "add_region",
          [](TransferEngine& engine, std::uint64_t address, std::uint64_t length, bool writable) {
            return bytes_of(engine.regions().add({{address, length}, writable}));
          },
          nb::arg("address"), nb::arg("length"), nb::arg("writable"))
      .def(
          "remove_region",
          [](TransferEngine& engine, const nb::bytes& token, std::uint64_t timeout_ms) {
            const Digest wanted = token_of(token);
            const nb::gil_scoped_release unlocked;
            return engine.regions().remove(wanted, Deadline::after_ms(timeout_ms));
          },
          nb::arg("token"), nb::arg("timeout_ms"))
      .def("is_region_free",
           [](TransferEngine& engine, const nb::bytes& token) { return engine.regions().is_free(token_of(token)); })
      .def("listen", listen, nb::arg("addresses"))
      .def("peer", make_peer, nb::arg("routes"), nb::kw_only(), nb::arg("secret"), nb::arg("name"), nb::arg("limits"),
           nb::keep_alive<0, 1>())
      .def("take_message", take_message, nb::arg("timeout_ms"))
      .def("watch_messages", [](TransferEngine& engine, std::uint64_t ticket) { engine.inbox().watch(ticket); })
      .def("take_completed", [](TransferEngine& engine) { return engine.queue().take(); })
      .def_prop_ro("completion_descriptor", [](TransferEngine& engine) { return engine.queue().descriptor(); })
      .def("counters", &TransferEngine::counters, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &TransferEngine::close, nb::call_guard<nb::gil_scoped_release>());
}

void bind_peer(nb::module_& module) {
  nb::class_<TransferPeer>(module, "TransferPeer", nb::is_final())
      .def(
          "connect",
          [](TransferPeer& peer, std::uint64_t timeout_ms) {
            RailClient::Connected connected;
            {
              const nb::gil_scoped_release unlocked;
              connected = peer.rails().connect(Deadline::after_ms(timeout_ms));
            }
            return nb::make_tuple(static_cast<unsigned>(connected.reason),
                                  nb::str(connected.message.data(), connected.message.size()));
          },
          nb::arg("timeout_ms"))
      .def("run", run, nb::arg("items"), nb::kw_only(), nb::arg("priority"), nb::arg("timeout_ms"), nb::arg("message"),
           nb::arg("checksum"))
      .def("run_one", run_one)
      .def(
          "submit",
          [](TransferPeer& peer, nb::handle items, unsigned priority, std::uint64_t timeout_ms,
             const nb::bytes& message, bool checksum) {
            const std::vector<TransferOperation> operations = operations_of(items);
            RailOrder order = order_of(priority, timeout_ms, message);
            const nb::gil_scoped_release unlocked;
            return peer.submit(operations, checksum, std::move(order));
          },
          nb::arg("items"), nb::kw_only(), nb::arg("priority"), nb::arg("timeout_ms"), nb::arg("message"),
          nb::arg("checksum"))
      .def(
          "probe",
          [](TransferPeer& peer, std::uint64_t timeout_ms) {
            const nb::gil_scoped_release unlocked;
            return static_cast<unsigned>(peer.rails().probe(Deadline::after_ms(timeout_ms)));
          },
          nb::arg("timeout_ms"))
      .def("rails", status_of)
      .def("transports", &TransferPeer::transport_names)
      .def("close", &TransferPeer::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_transfer(nb::module_& module) {
  bind_engine(module);
  bind_peer(module);
  nb::class_<Transfer>(module, "Transfer", nb::is_final())
      .def_prop_ro("done", &Transfer::done)
      .def(
          "wait",
          [](Transfer& transfer, std::uint64_t timeout_ms) {
            const nb::gil_scoped_release unlocked;
            return transfer.wait(Deadline::after_ms(timeout_ms));
          },
          nb::arg("timeout_ms"))
      .def("watch", &Transfer::watch, nb::arg("ticket"))
      .def("outcome", [](const Transfer& transfer, bool checksum) { return outcome_of(transfer.report(), checksum); });
  nb::class_<TransferOutcome>(module, "TransferOutcome", nb::is_final())
      .def_ro("failures", &TransferOutcome::failures)
      .def_ro("checksums", &TransferOutcome::checksums)
      .def_ro("message_reason", &TransferOutcome::message_reason);
}

}  // namespace moonpool
