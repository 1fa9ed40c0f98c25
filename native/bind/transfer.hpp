#pragma once

#include <nanobind/nanobind.h>

namespace moonpool {

void bind_transfer(nanobind::module_& module);

}  // namespace moonpool
