#include "bind/node_server.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/numbers.hpp"
#include "bind/peer_face.hpp"
#include "io/handshake.hpp"
#include "io/node_server.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

struct Place {
  std::string path, name, site;
};

NodeOptions options_of(const Place& place, const nb::bytes& secret, const nb::dict& limits) {
  NodeOptions options;
  options.identity.path = place.path;
  options.identity.name = place.name;
  options.identity.site = place.site;
  options.identity.release = MOONPOOL_VERSION;
  options.identity.secret = secret_from(text_of(secret));
  if (place.name.empty() || place.name.size() > label_bytes_max || place.site.size() > label_bytes_max) {
    throw nb::value_error("name and site have at most 255 bytes, and a name at least one");
  }
  for (const auto& [name, value] : limits) {
    set_limit(options.limits, nb::cast<std::string>(name), nb::cast<std::uint64_t>(value));
  }
  return options;
}

}  // namespace

void bind_node_server(nb::module_& module) {
  nb::class_<NodeServer>(module, "NodeServer", nb::is_final())
      .def(
          "__init__",
          [](NodeServer* self, std::string path, std::string name, std::string site, nb::bytes secret,
             std::uint64_t segment_bytes, std::uint64_t arena_bytes, std::vector<std::string> tenants,
             std::vector<std::string> directories, nb::dict limits, const std::vector<std::string>& listen,
             std::string advertise) {
            NodeOptions options = options_of({std::move(path), std::move(name), std::move(site)}, secret, limits);
            options.segment_bytes = segment_bytes;
            options.arena_bytes = arena_bytes;
            options.tenants = std::move(tenants);
            options.directories = std::move(directories);
            options.identity.addresses = listen_addresses(listen);
            options.identity.advertised = std::move(advertise);
            std::construct_at(self, std::move(options));
          },
          nb::kw_only(), nb::arg("path"), nb::arg("name"), nb::arg("site"), nb::arg("secret"), nb::arg("segment_bytes"),
          nb::arg("arena_bytes"), nb::arg("tenants"), nb::arg("directories"), nb::arg("limits"),
          nb::arg("listen") = nb::list(), nb::arg("advertise") = "")
      .def("start", &NodeServer::start, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &NodeServer::stop, nb::call_guard<nb::gil_scoped_release>())
      .def("status", &NodeServer::status, nb::call_guard<nb::gil_scoped_release>())
      .def("counters", &NodeServer::counters, nb::call_guard<nb::gil_scoped_release>())
      .def("check_integrity", &NodeServer::check_integrity, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace moonpool
