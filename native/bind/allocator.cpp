#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/binders.hpp"
#include "core/allocator.hpp"

namespace nb = nanobind;

namespace moonpool {

void bind_allocator(nb::module_& module) {
  nb::class_<Allocator>(module, "Allocator", nb::is_final())
      .def(nb::init<std::uint64_t>(), nb::arg("capacity_bytes"))
      .def("allocate", &Allocator::allocate, nb::arg("size_bytes"))
      .def("free", &Allocator::free, nb::arg("offset"))
      .def_prop_ro("capacity_bytes", &Allocator::capacity_bytes)
      .def_prop_ro("used_bytes", &Allocator::used_bytes)
      .def_prop_ro("largest_free_bytes", &Allocator::largest_free_bytes)
      .def("check_integrity", &Allocator::check_integrity);
}

}  // namespace moonpool
