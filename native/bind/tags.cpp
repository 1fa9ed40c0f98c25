#include "bind/tags.hpp"

#include "bind/numbers.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

Tags make_tags(std::uint64_t namespace_id, const nb::object& block_hashes, const nb::object& parent_hashes,
               const Tag& pattern) {
  const Numbers blocks(block_hashes, "block_hashes");
  const Numbers parents(parent_hashes, "parent_hashes");
  if (namespace_id == 0) { throw nb::value_error("namespace_id 0 means no tag"); }
  if (blocks.values().size() != parents.values().size()) {
    throw nb::value_error("block_hashes and parent_hashes differ in length");
  }
  if (pattern.shard_count == 0 || pattern.shard_index >= pattern.shard_count) {
    throw nb::value_error("shard_index must be below shard_count");
  }
  if (pattern.bundle_count == 0 || pattern.bundle_count > pattern.shard_count) {
    throw nb::value_error("bundle_count must be between 1 and shard_count");
  }
  Tags result;
  result.tags.assign(blocks.values().size(), pattern);
  for (std::size_t index = 0; index < result.tags.size(); ++index) {
    result.tags[index].namespace_id = namespace_id;
    result.tags[index].block_hash = blocks.values()[index];
    result.tags[index].parent_hash = parents.values()[index];
  }
  return result;
}

}  // namespace

void bind_tags(nb::module_& module) {
  nb::class_<Tags>(module, "Tags", nb::is_final())
      .def(nb::new_([](std::uint64_t namespace_id, nb::object block_hashes, nb::object parent_hashes,
                       std::uint16_t kv_group, std::uint16_t shard_index, std::uint16_t shard_count,
                       std::uint16_t bundle_count, bool chained) {
             Tag pattern;
             pattern.kv_group = kv_group;
             pattern.shard_index = shard_index;
             pattern.shard_count = shard_count;
             pattern.bundle_count = bundle_count;
             pattern.chained = chained;
             return make_tags(namespace_id, block_hashes, parent_hashes, pattern);
           }),
           nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("parent_hashes"), nb::kw_only(),
           nb::arg("kv_group") = 0, nb::arg("shard_index") = 0, nb::arg("shard_count") = 1, nb::arg("bundle_count") = 1,
           nb::arg("chained") = true)
      .def("__len__", [](const Tags& self) { return self.tags.size(); });
}

}  // namespace moonpool
