// A directory's memory: who is believed to hold what. Two tables: digest → holders, and
// (namespace, block hash, kv_group) → holders with shards and tiers. Pure; the caller serialises calls.
#pragma once

#include "core/block_index_entries.hpp"
#include "core/object_table.hpp"
#include "core/types.hpp"

namespace moonpool {

// Which cache rule a kv_group follows: window_block_count 0 is full attention, otherwise the last w blocks.
struct GroupRule {
  std::uint16_t kv_group = 0;
  std::uint16_t shard_count = 1;
  std::uint32_t window_block_count = 0;
};

struct HolderMatch {
  HolderId holder = 0;
  std::uint32_t block_count = 0;  // longest prefix that this holder alone can serve (every group, every shard)
  std::uint8_t tier_mask = 0;     // of all its whole blocks in that prefix
};

struct MatchResult {
  std::uint32_t fetchable_block_count = 0;  // largest n at which every group has what it needs, all shards somewhere
  std::vector<HolderMatch> holders;         // longest first
};

struct IndexStats {
  std::uint64_t holder_count, object_count, block_count, entry_count, bytes;
  std::uint64_t stored_total, removed_total, unknown_removed_total, refused_full_total;
};

// What an engine says of a block: it has no object and no key there, so its digest is made of the block itself.
[[nodiscard]] Event engine_block_event(EventKind kind, std::uint64_t namespace_id, std::uint64_t block_hash,
                                       std::uint16_t kv_group);

// An entry is one object at one holder; told again it stays one entry, whose tiers add up. Blocks of more than
// shard_count_max shards are located but not matched. Where one holder has two objects for one shard of one
// block, removing one hides the block until it is told again: a miss, never a wrong hit.
// A holder that is not there (never added, or forgotten) is a std::out_of_range.
class BlockIndex {
 public:
  explicit BlockIndex(std::uint64_t entry_count_max);
  HolderId add_holder();
  // Drops all of the holder's entries. An entry belongs to one holder id = one connection of one incarnation.
  void forget(HolderId holder);
  // false: the index is full and the entry was not taken (declared policy: refuse new, count it).
  bool stored(HolderId holder, const Event& event);
  void removed(HolderId holder, const Event& event);
  void cleared(HolderId holder);
  // All events of one message in order, by their kind; faster than one by one. Returns how many were not taken.
  std::uint64_t apply(HolderId holder, std::span<const Event> events);
  // Mark and sweep round a snapshot: begin marks all of the holder's entries, stored() unmarks, end drops the rest.
  // What stored() says about a marked entry replaces what was known of it.
  void snapshot_begin(HolderId holder);
  void snapshot_end(HolderId holder);
  [[nodiscard]] std::uint64_t entry_count(HolderId holder) const;
  // With a tier mask only what lies in those tiers counts.
  [[nodiscard]] MatchResult match(std::uint64_t namespace_id, std::span<const std::uint64_t> block_hashes,
                                  std::span<const GroupRule> groups, std::uint8_t tier_mask = tier_mask_all) const;
  void locate(const Digest& digest, std::vector<HolderId>& into) const;
  [[nodiscard]] IndexStats stats() const;
  [[nodiscard]] std::string check_integrity() const;

 private:
  void drop_all(Slot& first);

  std::uint64_t entry_count_max_;
  IndexEntries entries_;
  std::uint64_t stored_total_ = 0, removed_total_ = 0, unknown_removed_total_ = 0, refused_full_total_ = 0;
};

}  // namespace moonpool
