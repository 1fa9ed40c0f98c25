#include "bind/directory_server.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/peer_face.hpp"
#include "io/directory_server.hpp"
#include "io/node_options.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

DirectoryOptions options_of(std::string path, std::string name, const nb::bytes& secret, const nb::dict& limits) {
  if (name.empty() || name.size() > label_bytes_max) { throw nb::value_error("a name has between 1 and 255 bytes"); }
  DirectoryOptions options;
  options.identity.path = std::move(path);
  options.identity.name = std::move(name);
  options.identity.release = MOONPOOL_VERSION;
  options.identity.secret = secret_from(text_of(secret));
  for (const auto& [key, value] : limits) {
    const std::string limit = nb::cast<std::string>(key);
    if (!set_limit(options.limits, limit, nb::cast<std::uint64_t>(value))) {
      throw nb::value_error(("unknown limit '" + limit + "'").c_str());
    }
  }
  return options;
}

}  // namespace

void bind_directory_server(nb::module_& module) {
  nb::class_<DirectoryServer>(module, "DirectoryServer", nb::is_final())
      .def(
          "__init__",
          [](DirectoryServer* self, std::string path, std::string name, nb::bytes secret, std::uint64_t entry_count_max,
             nb::dict limits, const std::vector<std::string>& listen) {
            DirectoryOptions options = options_of(std::move(path), std::move(name), secret, limits);
            options.entry_count_max = entry_count_max;
            options.identity.addresses = listen_addresses(listen);
            std::construct_at(self, std::move(options));
          },
          nb::kw_only(), nb::arg("path"), nb::arg("name"), nb::arg("secret"), nb::arg("entry_count_max"),
          nb::arg("limits"), nb::arg("listen") = nb::list())
      .def("start", &DirectoryServer::start, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &DirectoryServer::stop, nb::call_guard<nb::gil_scoped_release>())
      .def("status", &DirectoryServer::status, nb::call_guard<nb::gil_scoped_release>())
      .def("counters", &DirectoryServer::counters, nb::call_guard<nb::gil_scoped_release>())
      .def("check_integrity", &DirectoryServer::check_integrity, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace moonpool
