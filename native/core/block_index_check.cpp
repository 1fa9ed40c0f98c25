#include <map>
#include <tuple>

#include "core/block_index.hpp"

namespace moonpool {
namespace {

// Reads the whole index and collects the first thing that does not agree.
class IndexCheck {
 public:
  explicit IndexCheck(const IndexEntries& entries) : entries_(entries) {}

  std::string run() {
    check_objects();
    check_holders();
    check_blocks();
    check_counts();
    return wrong_;
  }

 private:
  using Place = std::tuple<Slot, HolderId, std::uint8_t>;  // block, holder, tier

  void expect(bool holds, const char* what, Slot slot) {
    if (!holds && wrong_.empty()) wrong_ = std::string(what) + " (slot " + std::to_string(slot) + ")";
  }

  void check_objects() {
    entries_.object_index.for_each([&](std::uint32_t hash, Slot slot) {
      const IndexObject& object = entries_.objects[slot];
      expect(object.fingerprint_high == hash, "an object lies under another hash", slot);
      Slot next = object.records;
      expect((next & last_record_bit) == 0, "an object without records", slot);
      for (; (next & last_record_bit) == 0; next = entries_.records[next].next) {
        check_record(next);
        if (++chained_record_count_ > entries_.records.count()) return;  // a ring
      }
      expect((next & ~last_record_bit) == slot, "a chain of records ends at another object", slot);
    });
  }

  void check_record(Slot slot) {
    const IndexRecord& record = entries_.records[slot];
    expect(record.holder < entries_.holders.size() && entries_.holders[record.holder].present,
           "a record of a holder that is not there", slot);
    expect(record.tier_mask != 0, "a record in no tier", slot);
    if (record.block == no_slot) return;
    for (std::uint8_t tier = 1; tier < tier_mask_all; tier = static_cast<std::uint8_t>(tier << 1)) {
      if ((record.tier_mask & tier) == 0) continue;
      std::uint64_t& shards = wanted_[{record.block, record.holder, tier}];
      expect((shards >> record.shard_index & 1) == 0, "two records of one holder cover one shard", slot);
      shards |= std::uint64_t{1} << record.shard_index;
    }
  }

  void check_holders() {
    for (HolderId id = 0; id < entries_.holders.size(); ++id) {
      const Holder& holder = entries_.holders[id];
      const std::uint64_t count = check_list(id, holder.current, false) + check_list(id, holder.marked, true);
      expect(count == holder.entry_count, "a holder's entry count is not that of its lists", id);
      expect(holder.present || count == 0, "entries of a holder that is not there", id);
      listed_record_count_ += count;
    }
  }

  std::uint64_t check_list(HolderId holder, Slot first, bool marked) {
    std::uint64_t count = 0;
    for (Slot slot = first; slot != no_slot; slot = entries_.records[slot].of_holder.after) {
      expect(entries_.records[slot].holder == holder, "a record in another holder's list", slot);
      expect(entries_.is_marked(entries_.records[slot]) == marked, "a record in the wrong list of its holder", slot);
      if (++count > entries_.records.count()) break;  // a ring
    }
    return count;
  }

  void check_blocks() {
    std::map<Slot, std::uint64_t> block_counts;
    entries_.block_index.for_each([&](std::uint32_t hash, Slot slot) {
      const IndexBlock& block = entries_.blocks[slot];
      expect(block_hash_bits(block.family, block.block_hash) == hash, "a block lies under another hash", slot);
      expect(block.coverages != no_slot, "a block that nobody has", slot);
      ++block_counts[block.family];
      for (Slot next = block.coverages; next != no_slot; next = entries_.coverages[next].next) {
        const Coverage& coverage = entries_.coverages[next];
        const auto wanted = wanted_.find({slot, coverage.holder, coverage.tier});
        expect(wanted != wanted_.end() && wanted->second == coverage.shards, "shards that no record explains", slot);
        if (++coverage_count_ > entries_.coverages.count()) return;  // a ring
      }
    });
    for (const auto& [name, slot] : entries_.family_slots) {
      expect(entries_.families[slot].name == name, "a family under another name", slot);
      expect(entries_.families[slot].block_count == block_counts[slot], "a family's block count is wrong", slot);
      expect(entries_.families[slot].block_count != 0, "a family without blocks", slot);
    }
    expect(block_counts.size() == entries_.family_slots.size(), "blocks of an unknown family", no_slot);
  }

  void check_counts() {
    expect(chained_record_count_ == entries_.records.count(), "records outside their objects' chains", no_slot);
    expect(listed_record_count_ == entries_.records.count(), "records outside their holders' lists", no_slot);
    expect(coverage_count_ == entries_.coverages.count(), "coverages outside their blocks' chains", no_slot);
    expect(coverage_count_ == wanted_.size(), "records without coverage", no_slot);
    expect(entries_.object_index.count() == entries_.objects.count(), "objects outside the index", no_slot);
    expect(entries_.block_index.count() == entries_.blocks.count(), "blocks outside the index", no_slot);
    expect(entries_.family_slots.size() == entries_.families.count(), "families outside the index", no_slot);
  }

  const IndexEntries& entries_;
  std::map<Place, std::uint64_t> wanted_;  // shards, from the records
  std::uint64_t chained_record_count_ = 0, listed_record_count_ = 0, coverage_count_ = 0;
  std::string wrong_;
};

}  // namespace

std::string BlockIndex::check_integrity() const { return IndexCheck(entries_).run(); }

}  // namespace moonpool
