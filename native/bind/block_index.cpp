#include "core/block_index.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind/binders.hpp"
#include "bind/numbers.hpp"
#include "bind/tags.hpp"
#include "core/frame.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

using Groups = std::vector<std::tuple<std::uint16_t, std::uint16_t, std::uint32_t>>;
using HolderTuple = std::tuple<HolderId, std::uint32_t, std::uint8_t>;

Digest digest_of(std::string_view bytes) {
  if (bytes.size() != sizeof(Digest)) throw nb::value_error("a digest has 16 bytes");
  Reader reader(std::as_bytes(std::span(bytes)));
  return reader.digest();
}

// One event a digest, all of one kind.
std::vector<Event> events_of(EventKind kind, const nb::object& digests, const Tags* tags, std::uint8_t tier_mask) {
  const auto views = key_views(digests);
  if (tags != nullptr && tags->tags.size() != views.size()) throw nb::value_error("digests and tags differ in length");
  std::vector<Event> events(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    events[i].kind = kind;
    events[i].digest = digest_of(views[i]);
    events[i].tier_mask = tier_mask;
    if (tags != nullptr) events[i].tag = tags->tags[i];
  }
  return events;
}

std::uint64_t stored(BlockIndex& index, HolderId holder, const nb::object& digests, const Tags* tags,
                     std::uint8_t tier_mask) {
  const auto events = events_of(EventKind::stored, digests, tags, tier_mask);
  return events.size() - index.apply(holder, events);
}

void removed(BlockIndex& index, HolderId holder, const nb::object& digests, const Tags* tags, std::uint8_t tier_mask) {
  (void)index.apply(holder, events_of(EventKind::removed, digests, tags, tier_mask));
}

std::uint64_t tell_blocks(BlockIndex& index, HolderId holder, const nb::object& block_hashes, const Event& pattern) {
  const Numbers hashes(block_hashes, "block_hashes");
  if (pattern.tag.namespace_id == 0) throw nb::value_error("namespace_id 0 means no tag");
  std::vector<Event> events;
  events.reserve(hashes.values().size());
  for (const std::uint64_t hash : hashes.values()) {
    events.push_back(engine_block_event(pattern.kind, pattern.tag.namespace_id, hash, pattern.tag.kv_group));
    events.back().tier_mask = pattern.tier_mask;
  }
  return events.size() - index.apply(holder, events);
}

Event block_pattern(EventKind kind, std::uint64_t namespace_id, std::uint16_t kv_group, std::uint8_t tier_mask) {
  Event pattern = engine_block_event(kind, namespace_id, 0, kv_group);
  pattern.tier_mask = tier_mask;
  return pattern;
}

std::tuple<std::uint32_t, std::vector<HolderTuple>> match(const BlockIndex& index, std::uint64_t namespace_id,
                                                          const nb::object& block_hashes, const Groups& groups,
                                                          std::uint8_t tier_mask) {
  const Numbers hashes(block_hashes, "block_hashes");
  std::vector<GroupRule> rules;
  for (const auto& [kv_group, shard_count, window_block_count] : groups) {
    rules.push_back({kv_group, shard_count, window_block_count});
  }
  const MatchResult result = index.match(namespace_id, hashes.values(), rules, tier_mask);
  std::vector<HolderTuple> holders;
  holders.reserve(result.holders.size());
  for (const HolderMatch& holder : result.holders) {
    holders.emplace_back(holder.holder, holder.block_count, holder.tier_mask);
  }
  return {result.fetchable_block_count, std::move(holders)};
}

std::vector<HolderId> locate(const BlockIndex& index, const nb::bytes& digest) {
  std::vector<HolderId> holders;
  index.locate(digest_of({digest.c_str(), digest.size()}), holders);
  return holders;
}

nb::dict stats(const BlockIndex& index) {
  const IndexStats stats = index.stats();
  nb::dict result;
  result["holder_count"] = stats.holder_count;
  result["object_count"] = stats.object_count;
  result["block_count"] = stats.block_count;
  result["entry_count"] = stats.entry_count;
  result["bytes"] = stats.bytes;
  result["stored_total"] = stats.stored_total;
  result["removed_total"] = stats.removed_total;
  result["unknown_removed_total"] = stats.unknown_removed_total;
  result["refused_full_total"] = stats.refused_full_total;
  return result;
}

}  // namespace

void bind_block_index(nb::module_& module) {
  constexpr auto dram = static_cast<std::uint8_t>(Tier::dram);
  constexpr auto engine = static_cast<std::uint8_t>(Tier::engine);
  nb::class_<BlockIndex>(module, "BlockIndex", nb::is_final())
      .def(nb::init<std::uint64_t>(), nb::arg("entry_count_max"))
      .def("add_holder", &BlockIndex::add_holder)
      .def("forget", &BlockIndex::forget, nb::arg("holder"))
      .def("stored", &stored, nb::arg("holder"), nb::arg("digests"), nb::arg("tags") = nb::none(),
           nb::arg("tier_mask") = dram)
      .def("removed", &removed, nb::arg("holder"), nb::arg("digests"), nb::arg("tags") = nb::none(),
           nb::arg("tier_mask") = dram)
      .def("cleared", &BlockIndex::cleared, nb::arg("holder"))
      .def("snapshot_begin", &BlockIndex::snapshot_begin, nb::arg("holder"))
      .def("snapshot_end", &BlockIndex::snapshot_end, nb::arg("holder"))
      .def("entry_count", &BlockIndex::entry_count, nb::arg("holder"))
      .def(
          "blocks_stored",
          [](BlockIndex& index, HolderId holder, std::uint64_t namespace_id, const nb::object& block_hashes,
             std::uint16_t kv_group, std::uint8_t tier_mask) {
            return tell_blocks(index, holder, block_hashes,
                               block_pattern(EventKind::stored, namespace_id, kv_group, tier_mask));
          },
          nb::arg("holder"), nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("kv_group") = 0,
          nb::arg("tier_mask") = engine)
      .def(
          "blocks_removed",
          [](BlockIndex& index, HolderId holder, std::uint64_t namespace_id, const nb::object& block_hashes,
             std::uint16_t kv_group, std::uint8_t tier_mask) {
            (void)tell_blocks(index, holder, block_hashes,
                              block_pattern(EventKind::removed, namespace_id, kv_group, tier_mask));
          },
          nb::arg("holder"), nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("kv_group") = 0,
          nb::arg("tier_mask") = engine)
      .def("match", &match, nb::arg("namespace_id"), nb::arg("block_hashes"), nb::arg("groups"),
           nb::arg("tier_mask") = tier_mask_all)
      .def("locate", &locate, nb::arg("digest"))
      .def("stats", &stats)
      .def("check_integrity", &BlockIndex::check_integrity);
}

}  // namespace moonpool
