#include <algorithm>
#include <array>

#include "core/block_index.hpp"

namespace moonpool {
namespace {

// How many blocks' look-ups are under way at once: each is three dependent reads of cold memory.
constexpr std::size_t batch_block_count = 32;

// The last unbroken run of blocks that somebody has in one group.
struct Run {
  std::uint32_t end = 0;  // one past the last block
  std::uint32_t block_count = 0;

  void add(std::uint32_t block) {
    block_count = end == block ? block_count + 1 : 1;
    end = block + 1;
  }
};

// What one holder, or all together, can serve so far.
struct Progress {
  std::uint32_t block_count = 0;
  std::uint8_t tier_mask = 0;            // of the whole blocks seen
  std::uint8_t tier_mask_at_count = 0;   // when block_count was reached
};

// What a holder has of the block and group under consideration.
struct Holding {
  std::uint64_t step = 0;
  std::uint64_t shards = 0;
  std::uint8_t tier_mask = 0;
};

struct Group {
  Slot family = no_slot;
  std::uint64_t all_shards = 0;
  std::uint32_t window_block_count = 0;

  // Hits of n blocks need the last so many of them.
  [[nodiscard]] std::uint32_t needed(std::uint32_t block_count) const {
    return window_block_count == 0 ? block_count : std::min(window_block_count, block_count);
  }
};

class Matcher {
 public:
  Matcher(const IndexEntries& entries, std::vector<Group> groups, std::uint8_t tier_mask)
      : entries_(entries),
        tier_mask_(tier_mask),
        groups_(std::move(groups)),
        heads_(groups_.size()),
        holdings_(entries.holders.size()),
        progress_(entries.holders.size()),
        runs_(entries.holders.size() * groups_.size()),
        union_runs_(groups_.size()) {}

  MatchResult run(std::span<const std::uint64_t> block_hashes) {
    for (std::size_t first = 0; first < block_hashes.size(); first += batch_block_count) {
      const auto batch = block_hashes.subspan(first, std::min(batch_block_count, block_hashes.size() - first));
      for (std::size_t group = 0; group < groups_.size(); ++group) find_batch(group, batch);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!take_block(static_cast<std::uint32_t>(first + i), i)) return result();
      }
    }
    return result();
  }

 private:
  // Fills heads_[group]: the first coverage of each block of the batch. One pass for each level of memory, so
  // that the cold reads of all its blocks overlap.
  void find_batch(std::size_t group, std::span<const std::uint64_t> batch) {
    const Slot family = groups_[group].family;
    auto& heads = heads_[group];
    for (const std::uint64_t hash : batch) entries_.block_index.prefetch(block_hash_bits(family, hash));
    for (const std::uint64_t hash : batch) {
      const auto any = [](Slot) { return true; };
      const Slot likely = entries_.block_index.find(block_hash_bits(family, hash), any);
      if (likely != no_slot) entries_.blocks.prefetch(likely);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Slot block = entries_.find_block(family, batch[i]);
      heads[i] = block == no_slot ? no_slot : entries_.blocks[block].coverages;
      if (heads[i] != no_slot) entries_.coverages.prefetch(heads[i]);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (heads[i] == no_slot) continue;
      if (const Slot next = entries_.coverages[heads[i]].next; next != no_slot) entries_.coverages.prefetch(next);
    }
  }

  // false: no longer prefix is possible.
  bool take_block(std::uint32_t block, std::size_t place_in_batch) {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      const bool whole = gather(group, heads_[group][place_in_batch], block);
      if (whole) {
        union_runs_[group].add(block);
      } else if (groups_[group].window_block_count == 0) {
        return false;
      }
    }
    const std::uint32_t block_count = block + 1;
    if (serves(union_runs_, block_count)) fetchable_block_count_ = block_count;
    for (const HolderId holder : present_) {
      if (!serves(std::span(runs_).subspan(holder * groups_.size(), groups_.size()), block_count)) continue;
      progress_[holder].block_count = block_count;
      progress_[holder].tier_mask_at_count = progress_[holder].tier_mask;
    }
    return true;
  }

  // Adds the block to the runs of those who have all its shards. Whether all together have them.
  bool gather(std::size_t group, Slot head, std::uint32_t block) {
    ++step_;
    present_.clear();
    const std::uint64_t all_shards = groups_[group].all_shards;
    std::uint64_t shards = 0;
    for (Slot slot = head; slot != no_slot; slot = entries_.coverages[slot].next) {
      const Coverage& coverage = entries_.coverages[slot];
      if ((coverage.tier & tier_mask_) == 0) continue;
      Holding& holding = holdings_[coverage.holder];
      if (holding.step != step_) {
        holding = {step_, 0, 0};
        present_.push_back(coverage.holder);
      }
      holding.shards |= coverage.shards;
      holding.tier_mask |= coverage.tier;
      shards |= coverage.shards;
    }
    for (const HolderId holder : present_) {
      if ((holdings_[holder].shards & all_shards) != all_shards) continue;
      runs_[holder * groups_.size() + group].add(block);
      progress_[holder].tier_mask |= holdings_[holder].tier_mask;
    }
    return (shards & all_shards) == all_shards;
  }

  [[nodiscard]] bool serves(std::span<const Run> runs, std::uint32_t block_count) const {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      if (runs[group].end != block_count || runs[group].block_count < groups_[group].needed(block_count)) return false;
    }
    return true;
  }

  [[nodiscard]] MatchResult result() const {
    MatchResult result;
    result.fetchable_block_count = fetchable_block_count_;
    for (HolderId holder = 0; holder < progress_.size(); ++holder) {
      const Progress& progress = progress_[holder];
      if (progress.block_count > 0)
        result.holders.push_back({holder, progress.block_count, progress.tier_mask_at_count});
    }
    std::stable_sort(
        result.holders.begin(), result.holders.end(),
        [](const HolderMatch& left, const HolderMatch& right) { return left.block_count > right.block_count; });
    return result;
  }

  const IndexEntries& entries_;
  std::uint8_t tier_mask_;
  std::vector<Group> groups_;
  std::vector<std::array<Slot, batch_block_count>> heads_;  // by group
  std::vector<Holding> holdings_;                           // by holder
  std::vector<Progress> progress_;                          // by holder
  std::vector<Run> runs_;                                   // by holder and group
  std::vector<Run> union_runs_;                             // by group
  std::vector<HolderId> present_;                           // who has something of the block and group
  std::uint64_t step_ = 0;
  std::uint32_t fetchable_block_count_ = 0;
};

}  // namespace

MatchResult BlockIndex::match(std::uint64_t namespace_id, std::span<const std::uint64_t> block_hashes,
                              std::span<const GroupRule> groups, std::uint8_t tier_mask) const {
  std::vector<Group> known;
  for (const GroupRule& rule : groups) {
    const Slot family = entries_.find_family({namespace_id, rule.kv_group, rule.shard_count});
    if (family == no_slot || rule.shard_count == 0 || rule.shard_count > shard_count_max) return {};
    known.push_back({family, ~std::uint64_t{0} >> (shard_count_max - rule.shard_count), rule.window_block_count});
  }
  if (known.empty()) return {};
  // Full attention first: where it ends, everything ends.
  std::stable_partition(known.begin(), known.end(), [](const Group& group) { return group.window_block_count == 0; });
  return Matcher(entries_, std::move(known), tier_mask).run(block_hashes);
}

}  // namespace moonpool
