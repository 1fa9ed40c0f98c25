#pragma once

#include <nanobind/nanobind.h>

#include "io/layout.hpp"

namespace moonpool {

void bind_layout(nanobind::module_& module);

}  // namespace moonpool
