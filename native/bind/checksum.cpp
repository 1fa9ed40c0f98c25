#include "core/checksum.hpp"

#include <nanobind/nanobind.h>

#include "bind/binders.hpp"
#include "bind/numbers.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

std::uint32_t checksum(const nb::object& data, std::uint32_t crc) {
  const BufferGuard buffer(data, PyBUF_C_CONTIGUOUS);
  const nb::gil_scoped_release released;
  return crc32c(buffer.bytes(), crc);
}

std::uint32_t checksum_portable(const nb::object& data, std::uint32_t crc) {
  const BufferGuard buffer(data, PyBUF_C_CONTIGUOUS);
  const nb::gil_scoped_release released;
  return crc32c_portable(buffer.bytes(), crc);
}

std::uint32_t copy_and_checksum(const nb::object& target, const nb::object& source) {
  const BufferGuard into(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  const BufferGuard from(source, PyBUF_C_CONTIGUOUS);
  if (into.bytes().size() != from.bytes().size()) throw nb::value_error("target and source differ in length");
  const nb::gil_scoped_release released;
  return copy_crc32c(into.mutable_bytes(), from.bytes());
}

}  // namespace

void bind_checksum(nb::module_& module) {
  module.def("crc32c", &checksum, nb::arg("data"), nb::arg("crc") = 0);
  module.def("crc32c_portable", &checksum_portable, nb::arg("data"), nb::arg("crc") = 0);
  module.def("crc32c_combine", &crc32c_combine, nb::arg("first"), nb::arg("second"), nb::arg("second_bytes"));
  module.def("copy_crc32c", &copy_and_checksum, nb::arg("target"), nb::arg("source"));
}

}  // namespace moonpool
