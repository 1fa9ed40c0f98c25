#include "bind/node_client.hpp"

#include "bind/layout.hpp"
#include "bind/peer_face.hpp"
#include "bind/tags.hpp"
#include "bind/view.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

Values values_of(nb::handle keys, nb::handle addresses, nb::handle lengths, nb::handle piece_counts) {
  const Numbers starts(addresses, "addresses");
  const Numbers sizes(lengths, "lengths");
  if (starts.values().size() != sizes.values().size()) {
    throw nb::value_error("addresses and lengths differ in number");
  }
  std::vector<Piece> pieces;
  pieces.reserve(starts.values().size());
  for (std::size_t index = 0; index < starts.values().size(); ++index) {
    pieces.push_back({starts.values()[index], sizes.values()[index]});
  }
  if (piece_counts.is_none()) { return make_values(key_views(keys), std::move(pieces), {}); }
  const Numbers counts(piece_counts, "piece_counts");
  std::vector<std::string_view> names = key_views(keys);
  if (counts.values().size() != names.size()) { throw nb::value_error("piece_counts and keys differ in number"); }
  return make_values(std::move(names), std::move(pieces), counts.values());
}

Values blocks_of(const Layout& layout, nb::handle block_numbers, nb::handle keys) {
  const Numbers numbers(block_numbers, "block_numbers");
  std::vector<std::string_view> names = key_views(keys);
  if (numbers.values().size() != names.size()) { throw nb::value_error("block_numbers and keys differ in number"); }
  std::vector<Piece> pieces;
  pieces.reserve(names.size() * layout.piece_count());
  for (const std::uint64_t number : numbers.values()) { layout.pieces_of(number, pieces); }
  const std::vector<std::uint64_t> counts(names.size(), layout.piece_count());
  return make_values(std::move(names), std::move(pieces), counts);
}

PutOutcome put(NodeClient& client, const Values& values, const PutSettings& settings, std::uint64_t timeout_ms) {
  PutReport report;
  {
    const nb::gil_scoped_release unlocked;
    report = client.put(values, settings, Deadline::after_ms(timeout_ms));
  }
  return outcome_of(std::move(report));
}

ReadOutcome get_into(NodeClient& client, const Values& values, std::uint64_t timeout_ms) {
  ReadReport report;
  {
    const nb::gil_scoped_release unlocked;
    check_disjoint(values);
    report = client.get_into(values, Deadline::after_ms(timeout_ms));
  }
  return outcome_of(std::move(report));
}

nb::tuple get_views(NodeClient& client, nb::handle keys, bool verify, std::uint64_t timeout_ms) {
  const std::vector<std::string_view> names = key_views(keys);
  Views views;
  {
    const nb::gil_scoped_release unlocked;
    views = client.get_views(names, verify, Deadline::after_ms(timeout_ms));
  }
  nb::list result;
  for (std::shared_ptr<HeldBytes>& held : views.held) {
    result.append(held ? nb::cast(View(std::move(held))) : nb::none());
  }
  return nb::make_tuple(result, outcome_of(std::move(views.report)));
}

template <MessageType verb>
ReadOutcome ask_about(NodeClient& client, nb::object keys, std::uint64_t timeout_ms) {
  const std::vector<std::string_view> names = key_views(keys);
  ReadReport report;
  {
    const nb::gil_scoped_release unlocked;
    report = client.ask_about(verb, names, Deadline::after_ms(timeout_ms));
  }
  return outcome_of(std::move(report));
}

nb::tuple list(NodeClient& client, nb::bytes prefix, std::uint64_t cursor, std::uint32_t count,
               std::uint64_t timeout_ms) {
  Listing listing;
  {
    const std::string_view text = text_of(prefix);
    const nb::gil_scoped_release unlocked;
    listing = client.list(text, cursor, count, Deadline::after_ms(timeout_ms));
  }
  nb::list items;
  for (const ObjectTable::Listed& listed : listing.items) {
    nb::dict item;
    item["key"] = to_bytes(listed.key);
    item["length"] = listed.length;
    item["namespace_id"] = listed.tag.namespace_id;
    item["block_hash"] = listed.tag.block_hash;
    item["kv_group"] = listed.tag.kv_group;
    item["pinned"] = listed.pinned;
    item["checksum"] = listed.checksum;
    item["age_ms"] = listed.age_ms;
    items.append(item);
  }
  return nb::make_tuple(listing.cursor, items);
}

std::int64_t clear(NodeClient& client, std::uint64_t namespace_id, std::uint64_t timeout_ms) {
  const nb::gil_scoped_release unlocked;
  const std::optional<std::uint64_t> count = client.clear(namespace_id, Deadline::after_ms(timeout_ms));
  return count ? static_cast<std::int64_t>(*count) : -1;
}

nb::list rails_face(NodeClient& client) {
  nb::list rails;
  for (const RailStatus& status : client.rails().status()) {
    nb::dict rail;
    rail["peer"] = status.peer;
    rail["state"] = nb::str(status.state);
    rail["read_bytes"] = status.read_bytes;
    rail["written_bytes"] = status.written_bytes;
    rail["failure_count"] = status.failure_count;
    rails.append(rail);
  }
  return rails;
}

nb::dict info(NodeClient& client) {
  const std::shared_ptr<Session> session = client.peer().last_session();
  const bool shared_memory = session && client.uses_shared_memory(*session);
  const char* const wire = client.peer().options().address.remote() ? "tcp" : "socket";
  nb::dict info = info_face(client.peer(), shared_memory ? "shared_memory" : session ? wire : "none");
  info["rails"] = rails_face(client);
  return info;
}

void bind_life_cycle(nb::class_<NodeClient>& face) {
  face.def(
          "connect", [](NodeClient& self, std::uint64_t timeout_ms) { return connect_face(self.peer(), timeout_ms); },
          nb::arg("timeout_ms"))
      .def("close",
           [](NodeClient& self) {
             const nb::gil_scoped_release unlocked;
             self.close();
           })
      .def_prop_ro("closed", [](NodeClient& self) { return self.peer().closed(); })
      .def_prop_ro("connected", [](NodeClient& self) { return self.peer().connected(); })
      .def_prop_ro("info", info)
      .def(
          "describe",
          [](NodeClient& self, const std::string& document, std::uint64_t timeout_ms) {
            const nb::gil_scoped_release unlocked;
            return self.peer().describe(document, Deadline::after_ms(timeout_ms));
          },
          nb::arg("document"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def(
          "stat", [](NodeClient& self, std::uint64_t timeout_ms) { return stat_face(self.peer(), timeout_ms); },
          nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def(
          "ping", [](NodeClient& self, std::uint64_t timeout_ms) { return ping_face(self.peer(), timeout_ms); },
          nb::kw_only(), nb::arg("timeout_ms") = 2000);
}

void bind_puts(nb::class_<NodeClient>& face) {
  face.def(
          "put",
          [](NodeClient& self, nb::object keys, nb::object addresses, nb::object lengths, nb::object piece_counts,
             const Tags* tags, std::uint64_t bundle_id, std::uint16_t bundle_count, std::uint8_t priority,
             std::uint32_t keep_at_least_ms, std::uint32_t keep_at_most_ms, std::uint64_t timeout_ms) {
            PutSettings settings{{}, bundle_id, bundle_count, priority, keep_at_least_ms, keep_at_most_ms};
            if (tags != nullptr) { settings.tags = tags->tags; }
            return put(self, values_of(keys, addresses, lengths, piece_counts), settings, timeout_ms);
          },
          nb::arg("keys"), nb::arg("addresses"), nb::arg("lengths"), nb::arg("piece_counts") = nb::none(),
          nb::kw_only(), nb::arg("tags") = nb::none(), nb::arg("bundle_id") = 0, nb::arg("bundle_count") = 1,
          nb::arg("priority") = 0, nb::arg("keep_at_least_ms") = 0, nb::arg("keep_at_most_ms") = 0,
          nb::arg("timeout_ms") = 5000)
      .def(
          "put_blocks",
          [](NodeClient& self, const Layout& layout, nb::object block_numbers, nb::object keys, const Tags* tags,
             std::uint8_t priority, std::uint32_t keep_at_least_ms, std::uint32_t keep_at_most_ms,
             std::uint64_t timeout_ms) {
            PutSettings settings{{}, 0, 1, priority, keep_at_least_ms, keep_at_most_ms};
            if (tags != nullptr) { settings.tags = tags->tags; }
            return put(self, blocks_of(layout, block_numbers, keys), settings, timeout_ms);
          },
          nb::arg("layout"), nb::arg("block_numbers"), nb::arg("keys"), nb::kw_only(), nb::arg("tags") = nb::none(),
          nb::arg("priority") = 0, nb::arg("keep_at_least_ms") = 0, nb::arg("keep_at_most_ms") = 0,
          nb::arg("timeout_ms") = 5000);
}

void bind_gets(nb::class_<NodeClient>& face) {
  face.def(
          "get_into",
          [](NodeClient& self, nb::object keys, nb::object addresses, nb::object lengths, nb::object piece_counts,
             std::uint64_t timeout_ms) {
            return get_into(self, values_of(keys, addresses, lengths, piece_counts), timeout_ms);
          },
          nb::arg("keys"), nb::arg("addresses"), nb::arg("lengths"), nb::arg("piece_counts") = nb::none(),
          nb::kw_only(), nb::arg("timeout_ms") = 5000)
      .def(
          "get_blocks",
          [](NodeClient& self, const Layout& layout, nb::object block_numbers, nb::object keys,
             std::uint64_t timeout_ms) { return get_into(self, blocks_of(layout, block_numbers, keys), timeout_ms); },
          nb::arg("layout"), nb::arg("block_numbers"), nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 5000)
      .def(
          "get_views",
          [](NodeClient& self, nb::object keys, bool verify, std::uint64_t timeout_ms) {
            return get_views(self, keys, verify, timeout_ms);
          },
          nb::arg("keys"), nb::kw_only(), nb::arg("verify") = true, nb::arg("timeout_ms") = 5000);
}

void bind_questions(nb::class_<NodeClient>& face) {
  face.def("exists", &ask_about<MessageType::exists>, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def("remove", &ask_about<MessageType::remove>, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def("pin", &ask_about<MessageType::pin>, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def("unpin", &ask_about<MessageType::unpin>, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def("why", &ask_about<MessageType::why>, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def("clear", &clear, nb::arg("namespace_id"), nb::kw_only(), nb::arg("timeout_ms") = 5000)
      .def("list", &list, nb::arg("prefix"), nb::arg("cursor"), nb::arg("count"), nb::kw_only(),
           nb::arg("timeout_ms") = 2000)
      .def(
          "match",
          [](NodeClient& self, std::uint64_t namespace_id, nb::object block_hashes, nb::object groups,
             std::uint64_t timeout_ms) {
            return match_face(self.peer(), match_question(namespace_id, block_hashes, groups), timeout_ms);
          },
          nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("groups"), nb::kw_only(),
          nb::arg("timeout_ms") = 2);
}

}  // namespace

void bind_node_client(nb::module_& module) {
  nb::class_<NodeClient> face(module, "NodeClient", nb::is_final());
  face.def(
      "__init__",
      [](NodeClient* self, std::string path, nb::bytes secret, std::string tenant, std::string name,
         std::uint64_t connect_timeout_ms, bool shared_memory, std::uint32_t rail_count) {
        std::construct_at(
            self, peer_options({std::move(path), secret, std::move(tenant), std::move(name), connect_timeout_ms}),
            shared_memory, rail_count);
      },
      nb::arg("path"), nb::kw_only(), nb::arg("secret"), nb::arg("tenant") = "default", nb::arg("name") = "",
      nb::arg("connect_timeout_ms") = 2000, nb::arg("shared_memory") = true, nb::arg("rail_count") = 2);
  bind_life_cycle(face);
  bind_puts(face);
  bind_gets(face);
  bind_questions(face);
}

}  // namespace moonpool
