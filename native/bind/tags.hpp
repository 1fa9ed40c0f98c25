// Tags of a batch of keys, as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include "core/types.hpp"

namespace moonpool {

// One tag per key of a put, all of one namespace and one kv_group.
struct Tags {
  std::vector<Tag> tags;
};

void bind_tags(nanobind::module_& module);

}  // namespace moonpool
