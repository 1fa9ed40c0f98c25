// One function per file of native/bind: each adds its classes and functions to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace moonpool {

void bind_allocator(nanobind::module_& module);
void bind_object_table(nanobind::module_& module);
void bind_transfer_plan(nanobind::module_& module);
void bind_checksum(nanobind::module_& module);
void bind_block_index(nanobind::module_& module);
void bind_wire(nanobind::module_& module);
void bind_outcomes(nanobind::module_& module);
void bind_view(nanobind::module_& module);
void bind_node_client(nanobind::module_& module);
void bind_directory_client(nanobind::module_& module);
void bind_node_server(nanobind::module_& module);
void bind_directory_server(nanobind::module_& module);
void bind_transfer(nanobind::module_& module);

}  // namespace moonpool
