#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/block_index.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "tests/seed.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t namespace_id = 77;
constexpr std::uint8_t dram = static_cast<std::uint8_t>(Tier::dram), disk = static_cast<std::uint8_t>(Tier::disk);
const std::vector<GroupRule> full_attention{{0, 1, 0}};

struct Shard {
  std::uint16_t index = 0, count = 1, kv_group = 0;
};

Event block_event(std::uint64_t block_hash, Shard shard = {}, std::uint8_t tier_mask = dram) {
  Event event;
  event.digest = {mixed(block_hash), (std::uint64_t{shard.kv_group} << 16) + shard.index};
  event.tag.namespace_id = namespace_id;
  event.tag.block_hash = block_hash;
  event.tag.shard_index = shard.index;
  event.tag.shard_count = shard.count;
  event.tag.kv_group = shard.kv_group;
  event.tier_mask = tier_mask;
  return event;
}

std::vector<std::uint64_t> blocks_to(std::uint64_t count) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t hash = 1; hash <= count; ++hash) hashes.push_back(hash);
  return hashes;
}

void store(BlockIndex& index, HolderId holder, std::uint64_t first, std::uint64_t last, Shard shard = {}) {
  for (std::uint64_t hash = first; hash <= last; ++hash) (void)index.stored(holder, block_event(hash, shard));
}

std::uint32_t length_at(const MatchResult& result, HolderId holder) {
  for (const HolderMatch& match : result.holders) {
    if (match.holder == holder) return match.block_count;
  }
  return 0;
}

void expect_sound(const BlockIndex& index) { CHECK_MESSAGE((index.check_integrity()) == (std::string()), "integrity"); }

TEST_CASE("with a tier mask only what lies in those tiers counts") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder();
  for (std::uint64_t hash = 1; hash <= 6; ++hash) {
    Event event = engine_block_event(EventKind::stored, namespace_id, hash, 0);
    event.tier_mask = hash <= 2 ? static_cast<std::uint8_t>(Tier::engine) : hash <= 4 ? dram : disk;
    (void)index.stored(holder, event);
  }
  const auto length = [&](std::uint8_t tier_mask) {
    return length_at(index.match(namespace_id, blocks_to(6), full_attention, tier_mask), holder);
  };
  CHECK_MESSAGE(length(1) == 2U, "engine alone");
  CHECK_MESSAGE(length(3) == 4U, "engine and memory");
  CHECK_MESSAGE(length(tier_mask_all) == 6U, "all");
  CHECK_MESSAGE(length(dram) == 0U, "memory alone lacks the first block");
}

TEST_CASE("the longest prefix of each holder is found, longest first") {
  BlockIndex index(1000);
  const HolderId one = index.add_holder(), two = index.add_holder(), three = index.add_holder();
  store(index, one, 1, 3);
  store(index, two, 1, 5);
  store(index, three, 2, 9);  // without the first block: nothing
  const MatchResult result = index.match(namespace_id, blocks_to(10), full_attention);
  CHECK_MESSAGE((result.fetchable_block_count) == (9U), "fetchable goes on at another holder");
  CHECK(result.holders.size() == 2UL);
  CHECK(result.holders.front().holder == two);
  CHECK(length_at(result, two) == 5U);
  CHECK(length_at(result, one) == 3U);
  CHECK(index.match(namespace_id + 1, blocks_to(10), full_attention).fetchable_block_count == 0U);
  expect_sound(index);
}

TEST_CASE("a block counts only with all its shards") {
  BlockIndex index(1000);
  const HolderId one = index.add_holder(), two = index.add_holder();
  const std::vector<GroupRule> groups{{0, 2, 0}};
  store(index, one, 1, 4, {0, 2});
  store(index, one, 1, 2, {1, 2});
  store(index, two, 3, 4, {1, 2});
  const MatchResult result = index.match(namespace_id, blocks_to(4), groups);
  CHECK_MESSAGE((result.fetchable_block_count) == (4U), "shards at two holders make blocks fetchable");
  CHECK(length_at(result, one) == 2U);
  CHECK(length_at(result, two) == 0U);
  CHECK_MESSAGE((index.match(namespace_id, blocks_to(4), full_attention).fetchable_block_count) == (0U),
                "blocks of another shard count are other blocks");
}

TEST_CASE("a window group needs only its last blocks") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder();
  const std::vector<GroupRule> groups{{1, 1, 2}, {0, 1, 0}};
  store(index, holder, 1, 6);
  for (const std::uint64_t hash : {1, 4, 5}) (void)index.stored(holder, block_event(hash, {.kv_group = 1}));
  const auto length = [&](std::uint64_t count) {
    return index.match(namespace_id, blocks_to(count), groups).fetchable_block_count;
  };
  CHECK_MESSAGE((length(6)) == (5U), "the window's last two blocks at 5");
  CHECK_MESSAGE((length(4)) == (1U), "at 4 the window lacks block 3; at 1 it is one block long");
  CHECK(length_at(index.match(namespace_id, blocks_to(6), groups), holder) == 5U);
}

TEST_CASE("the tiers are those of the prefix") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder();
  (void)index.stored(holder, block_event(1, {}, dram));
  (void)index.stored(holder, block_event(2, {}, disk));
  (void)index.stored(holder, block_event(2, {}, dram));
  const auto tiers = [&](std::uint64_t count) {
    return int{index.match(namespace_id, blocks_to(count), full_attention).holders.at(0).tier_mask};
  };
  CHECK(tiers(1) == int{dram});
  CHECK(tiers(2) == (dram | disk));
  index.removed(holder, block_event(2, {}, disk));
  CHECK_MESSAGE((tiers(2)) == (int{dram}), "gone from disk, still in memory");
  CHECK(index.stats().entry_count == 2UL);
  index.removed(holder, block_event(2, {}, dram));
  CHECK(index.stats().entry_count == 1UL);
  expect_sound(index);
}

TEST_CASE("duplicates and unknown removals are harmless") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder(), other = index.add_holder();
  for (int turn = 0; turn < 3; ++turn) store(index, holder, 1, 2);
  CHECK(index.stats().entry_count == 2UL);
  index.removed(other, block_event(1));
  index.removed(holder, block_event(9));
  CHECK(index.stats().unknown_removed_total == 2UL);
  for (int turn = 0; turn < 3; ++turn) index.removed(holder, block_event(1));
  CHECK(index.stats().entry_count == 1UL);
  CHECK(index.stats().removed_total == 1UL);
  CHECK(index.stats().unknown_removed_total == 4UL);
  expect_sound(index);
}

TEST_CASE("a snapshot drops what it does not name") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder(), other = index.add_holder();
  store(index, holder, 1, 5);
  store(index, other, 1, 1);
  index.snapshot_begin(holder);
  CHECK_MESSAGE((index.match(namespace_id, blocks_to(5), full_attention).fetchable_block_count) == (5U),
                "kept meanwhile");
  store(index, holder, 1, 2);
  store(index, holder, 6, 6);
  index.snapshot_begin(holder);  // the connection lost its place and starts over
  store(index, holder, 1, 3);
  (void)index.stored(holder, block_event(7));
  index.removed(holder, block_event(3));  // a live event in between
  index.snapshot_end(holder);
  CHECK_MESSAGE((index.entry_count(holder)) == (3UL), "blocks 1, 2 and 7");
  CHECK(length_at(index.match(namespace_id, blocks_to(5), full_attention), holder) == 2U);
  CHECK_MESSAGE((index.entry_count(other)) == (1UL), "another holder's entries are its own");
  expect_sound(index);
}

TEST_CASE("a snapshot says anew in which tiers an object lies") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder();
  (void)index.stored(holder, block_event(1, {}, disk));
  index.snapshot_begin(holder);
  (void)index.stored(holder, block_event(1, {}, dram));
  index.snapshot_end(holder);
  CHECK(int{index.match(namespace_id, blocks_to(1), full_attention).holders.at(0).tier_mask} == int{dram});
  expect_sound(index);
}

TEST_CASE("forgetting a holder leaves nothing of it") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder(), other = index.add_holder();
  store(index, holder, 1, 5);
  store(index, other, 1, 2);
  std::vector<HolderId> holders;
  index.locate(block_event(1).digest, holders);
  std::sort(holders.begin(), holders.end());
  CHECK_MESSAGE((holders == std::vector<HolderId>{holder, other}), "both are located");
  index.forget(holder);
  holders.clear();
  index.locate(block_event(1).digest, holders);
  CHECK_MESSAGE(holders == std::vector<HolderId>{other}, "one is left");
  CHECK(index.stats().entry_count == 2UL);
  CHECK(index.stats().holder_count == 1UL);
  bool refused = false;
  try {
    (void)index.stored(holder, block_event(1));
  } catch (const std::out_of_range&) { refused = true; }
  CHECK_MESSAGE(refused, "a forgotten holder was believed");
  CHECK_MESSAGE((index.add_holder()) == (holder), "ids are small and used again");
  CHECK(index.entry_count(holder) == 0UL);
  expect_sound(index);
}

TEST_CASE("a full index refuses new entries and counts them") {
  BlockIndex index(3);
  const HolderId holder = index.add_holder();
  store(index, holder, 1, 3);
  CHECK_MESSAGE(!index.stored(holder, block_event(4)), "taken past the limit");
  CHECK_MESSAGE(index.stored(holder, block_event(3)), "known already, and so taken again");
  CHECK(index.stats().refused_full_total == 1UL);
  index.removed(holder, block_event(1));
  CHECK_MESSAGE(index.stored(holder, block_event(4)), "room again");
  expect_sound(index);
}

TEST_CASE("an object that is told with another tag moves") {
  BlockIndex index(1000);
  const HolderId holder = index.add_holder();
  Event event = block_event(1);
  (void)index.stored(holder, event);
  event.tag.block_hash = 2;
  (void)index.stored(holder, event);
  CHECK(index.match(namespace_id, blocks_to(1), full_attention).fetchable_block_count == 0U);
  CHECK(index.match(namespace_id, std::vector<std::uint64_t>{2}, full_attention).fetchable_block_count == 1U);
  event.tag = {};
  (void)index.stored(holder, event);
  CHECK(index.stats().block_count == 0UL);
  CHECK(index.stats().entry_count == 1UL);
  expect_sound(index);
}

TEST_CASE("random events leave it sound, and empty when all is gone") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  std::mt19937_64 random(test::seed());
  BlockIndex index(400);
  std::vector<HolderId> holders{index.add_holder(), index.add_holder(), index.add_holder()};
  for (int step = 0; step < 20'000; ++step) {
    HolderId& holder = holders[random() % holders.size()];
    Event event = block_event(random() % 200, {static_cast<std::uint16_t>(random() % 2), 2},
                              static_cast<std::uint8_t>(random() % 16));
    if (random() % 10 == 0) event.tag.block_hash = random() % 200;
    switch (random() % 100) {
      case 0: index.snapshot_begin(holder); break;
      case 1: index.snapshot_end(holder); break;
      case 2: index.cleared(holder); break;
      case 3:
        index.forget(holder);
        holder = index.add_holder();
        break;
      default: event.kind = static_cast<EventKind>(random() % 2); (void)index.apply(holder, std::span(&event, 1));
    }
    if (step % 100 == 0) expect_sound(index);
  }
  for (const HolderId holder : holders) index.forget(holder);
  expect_sound(index);
  CHECK(index.stats().entry_count + index.stats().block_count + index.stats().object_count == 0UL);
}

}  // namespace
}  // namespace moonpool
