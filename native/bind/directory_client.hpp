#pragma once

#include <nanobind/nanobind.h>

namespace moonpool {

void bind_directory_client(nanobind::module_& module);

}  // namespace moonpool
