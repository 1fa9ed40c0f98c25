// The Python module moonpool._native: what src/moonpool/_native.pyi declares.
#include <nanobind/nanobind.h>

#include <system_error>

#include "bind/binders.hpp"
#include "bind/layout.hpp"
#include "bind/numbers.hpp"
#include "bind/tags.hpp"

namespace nb = nanobind;

namespace {

// A refusal of the operating system keeps its number: OSError(errno, text).
void translate_system_error(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& refused) {
    nb::object arguments = nb::make_tuple(refused.code().value(), refused.what());
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  }
}

}  // namespace

NB_MODULE(_native, module) {
  nb::set_leak_warnings(false);  // module-level caches of the interpreter outlive us; not our business
  nb::register_exception_translator(translate_system_error, nullptr);
  module.attr("__version__") = MOONPOOL_VERSION;
  moonpool::bind_numbers(module);
  moonpool::bind_tags(module);
  moonpool::bind_layout(module);
  moonpool::bind_allocator(module);
  moonpool::bind_object_table(module);
  moonpool::bind_transfer_plan(module);
  moonpool::bind_checksum(module);
  moonpool::bind_block_index(module);
  moonpool::bind_wire(module);
  moonpool::bind_outcomes(module);
  moonpool::bind_view(module);
  moonpool::bind_node_client(module);
  moonpool::bind_node_server(module);
  moonpool::bind_directory_client(module);
  moonpool::bind_directory_server(module);
  moonpool::bind_transfer(module);
}
