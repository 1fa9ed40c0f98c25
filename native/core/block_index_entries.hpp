// How a BlockIndex keeps what it knows: about 61 bytes for each (block, holder) where two holders know a block.
#pragma once

#include <unordered_map>

#include "core/linked_slots.hpp"
#include "core/slot_index.hpp"
#include "core/slot_pool.hpp"
#include "core/types.hpp"

namespace moonpool {

using HolderId = std::uint32_t;  // small, reused after forget()

inline constexpr std::uint32_t holder_count_max = 65'535;
inline constexpr std::uint16_t shard_count_max = 64;  // one bit each

// One object at one holder.
struct IndexRecord {
  Slot next = no_slot;   // the object's next record; in the last one the object itself, last_record_bit set
  Slot block = no_slot;  // no_slot: untagged, or another record of the holder covers this shard of its block
  Link of_holder;        // in the holder's list of current or of marked records
  std::uint16_t holder = 0;
  std::uint8_t shard_index = 0;
  std::uint8_t tier_mask : 4 = 0;
  std::uint8_t phase : 1 = 0;  // other than its holder's: marked by a snapshot that has not named it yet
};
inline constexpr Slot last_record_bit = 0x80000000;

// 64 bits of a digest: it is a keyed hash, and what an index says is a hint.
struct IndexObject {
  std::uint32_t fingerprint_low = 0, fingerprint_high = 0;
  Slot records = no_slot;
};

// The shards of one block that one holder has in one tier.
struct Coverage {
  std::uint64_t shards = 0;
  Slot next = no_slot;  // the block's next coverage
  std::uint16_t holder = 0;
  std::uint8_t tier = 0;  // one bit
};

struct IndexBlock {
  std::uint64_t block_hash = 0;
  Slot family = no_slot;
  Slot coverages = no_slot;
};

// The blocks that may be compared with each other.
struct FamilyName {
  std::uint64_t namespace_id = 0;
  std::uint16_t kv_group = 0;
  std::uint16_t shard_count = 1;
  friend bool operator==(const FamilyName&, const FamilyName&) = default;
};
struct Family {
  FamilyName name{};
  std::uint64_t block_count = 0;
};
struct FamilyHash {
  std::size_t operator()(const FamilyName& name) const {
    return mixed(name.namespace_id ^ (std::uint64_t{name.kv_group} << 16 | name.shard_count));
  }
};

struct Holder {
  bool present = false;
  Slot current = no_slot;  // its records
  Slot marked = no_slot;   // those that a snapshot under way has not named yet
  std::uint8_t phase = 0;  // flips with each snapshot, so that marking all touches none
  std::uint64_t entry_count = 0;
};

[[nodiscard]] std::uint64_t fingerprint_of(const Digest& digest);
[[nodiscard]] std::uint32_t block_hash_bits(Slot family, std::uint64_t block_hash);

// The pools and indexes together; every operation leaves them consistent.
struct IndexEntries {
  SlotPool<IndexObject> objects;
  SlotPool<IndexRecord> records;
  SlotPool<IndexBlock> blocks;
  SlotPool<Coverage> coverages;
  SlotPool<Family> families;
  SlotIndex object_index, block_index;
  std::unordered_map<FamilyName, Slot, FamilyHash> family_slots;
  std::vector<Holder> holders;

  [[nodiscard]] Holder& holder_at(HolderId holder);
  [[nodiscard]] Slot find_object(const Digest& digest) const;
  [[nodiscard]] Slot find_record(Slot object, HolderId holder) const;
  [[nodiscard]] Slot find_block(Slot family, std::uint64_t block_hash) const;
  [[nodiscard]] Slot find_family(const FamilyName& name) const;
  [[nodiscard]] bool is_marked(const IndexRecord& record) const { return record.phase != holders[record.holder].phase; }
  // Whether the record lies in the block and shard that the tag names.
  [[nodiscard]] bool is_at(const IndexRecord& record, const Tag& tag) const;

  // A new record, in no tier yet, of the object that find_object(digest) gave.
  Slot add_record(HolderId holder, Slot object, const Digest& digest, const Tag& tag);
  void add_tiers(IndexRecord& record, std::uint8_t tier_mask);
  void remove_tiers(IndexRecord& record, std::uint8_t tier_mask);
  void unmark(Slot record);
  void mark_all(Holder& holder);
  void drop_record(Slot record);
  void prefetch(const Digest& digest, const Tag& tag) const;
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  Slot add_object(const Digest& digest);
  Slot add_family(const FamilyName& name);
  Slot add_block(const Tag& tag);
  void drop_block(Slot block);
  [[nodiscard]] bool is_covered(Slot block, HolderId holder, std::uint16_t shard_index) const;
  void cover(const IndexRecord& record, std::uint8_t tier);
  void uncover(const IndexRecord& record, std::uint8_t tier);
  void unchain(Slot record);

  // The family asked for last: whole messages and whole look-ups are of one.
  mutable FamilyName recent_name_{};
  mutable Slot recent_family_ = no_slot;
};

}  // namespace moonpool
