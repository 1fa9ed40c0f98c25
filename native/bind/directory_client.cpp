#include "bind/directory_client.hpp"

#include "bind/peer_face.hpp"
#include "io/directory_client.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

nb::object locate(DirectoryClient& client, nb::object keys, std::uint64_t timeout_ms) {
  const std::vector<std::string_view> names = key_views(keys);
  std::optional<std::vector<std::vector<Located>>> found;
  {
    const nb::gil_scoped_release unlocked;
    found = client.locate(names, Deadline::after_ms(timeout_ms));
  }
  if (!found) { return nb::none(); }
  nb::list result;
  for (const std::vector<Located>& places : *found) {
    nb::list here;
    for (const Located& place : places) { here.append(nb::make_tuple(place.name, place.incarnation, place.address)); }
    result.append(here);
  }
  return result;
}

void bind_life_cycle(nb::class_<DirectoryClient>& face) {
  face.def(
          "connect",
          [](DirectoryClient& self, std::uint64_t timeout_ms) { return connect_face(self.peer(), timeout_ms); },
          nb::arg("timeout_ms"))
      .def("close",
           [](DirectoryClient& self) {
             const nb::gil_scoped_release unlocked;
             self.peer().close();
           })
      .def_prop_ro("closed", [](DirectoryClient& self) { return self.peer().closed(); })
      .def_prop_ro("connected", [](DirectoryClient& self) { return self.peer().connected(); })
      .def_prop_ro("info", [](DirectoryClient& self) { return info_face(self.peer(), "socket"); });
}

void bind_verbs(nb::class_<DirectoryClient>& face) {
  face.def(
          "match",
          [](DirectoryClient& self, std::uint64_t namespace_id, nb::object block_hashes, nb::object groups,
             std::uint64_t timeout_ms) {
            return match_face(self.peer(), match_question(namespace_id, block_hashes, groups), timeout_ms);
          },
          nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("groups"), nb::kw_only(), nb::arg("timeout_ms") = 2)
      .def("locate", &locate, nb::arg("keys"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def(
          "describe",
          [](DirectoryClient& self, const std::string& document, std::uint64_t timeout_ms) {
            const nb::gil_scoped_release unlocked;
            return self.peer().describe(document, Deadline::after_ms(timeout_ms));
          },
          nb::arg("document"), nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def(
          "stat", [](DirectoryClient& self, std::uint64_t timeout_ms) { return stat_face(self.peer(), timeout_ms); },
          nb::kw_only(), nb::arg("timeout_ms") = 2000)
      .def(
          "ping", [](DirectoryClient& self, std::uint64_t timeout_ms) { return ping_face(self.peer(), timeout_ms); },
          nb::kw_only(), nb::arg("timeout_ms") = 2000);
}

}  // namespace

void bind_directory_client(nb::module_& module) {
  nb::class_<DirectoryClient> face(module, "DirectoryClient", nb::is_final());
  face.def(
      "__init__",
      [](DirectoryClient* self, std::string path, nb::bytes secret, std::string tenant, std::string name,
         std::uint64_t connect_timeout_ms) {
        std::construct_at(
            self, peer_options({std::move(path), secret, std::move(tenant), std::move(name), connect_timeout_ms}));
      },
      nb::arg("path"), nb::kw_only(), nb::arg("secret"), nb::arg("tenant") = "default", nb::arg("name") = "",
      nb::arg("connect_timeout_ms") = 2000);
  bind_life_cycle(face);
  bind_verbs(face);
}

}  // namespace moonpool
