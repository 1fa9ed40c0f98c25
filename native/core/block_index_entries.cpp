#include "core/block_index_entries.hpp"

#include <stdexcept>
#include <utility>

namespace moonpool {
namespace {

constexpr std::uint8_t tier_count = 4;

bool is_matched(const Tag& tag) { return tag.present() && tag.shard_count <= shard_count_max; }
FamilyName family_of(const Tag& tag) { return {tag.namespace_id, tag.kv_group, tag.shard_count}; }
std::uint32_t upper_bits(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }
bool is_object(Slot next) { return (next & last_record_bit) != 0; }

template <typename Act>
void each_tier(std::uint8_t tier_mask, Act&& act) {
  for (std::uint8_t bit = 0; bit < tier_count; ++bit) {
    const auto tier = static_cast<std::uint8_t>(1U << bit);
    if ((tier_mask & tier) != 0) act(tier);
  }
}

}  // namespace

std::uint64_t fingerprint_of(const Digest& digest) { return mixed(digest.low) ^ digest.high; }
std::uint32_t block_hash_bits(Slot family, std::uint64_t block_hash) {
  return upper_bits(mixed(block_hash + family * 0x9e3779b97f4a7c15ULL));
}

Holder& IndexEntries::holder_at(HolderId holder) {
  if (holder >= holders.size() || !holders[holder].present)
    throw std::out_of_range("no such holder in the block index");
  return holders[holder];
}

Slot IndexEntries::find_object(const Digest& digest) const {
  const std::uint64_t fingerprint = fingerprint_of(digest);
  return object_index.find(upper_bits(fingerprint), [&](Slot slot) {
    const IndexObject& object = objects[slot];
    return object.fingerprint_high == upper_bits(fingerprint) &&
           object.fingerprint_low == static_cast<std::uint32_t>(fingerprint);
  });
}

Slot IndexEntries::find_record(Slot object, HolderId holder) const {
  if (object == no_slot) return no_slot;
  for (Slot slot = objects[object].records; !is_object(slot); slot = records[slot].next) {
    if (records[slot].holder == holder) return slot;
  }
  return no_slot;
}

Slot IndexEntries::find_block(Slot family, std::uint64_t block_hash) const {
  return block_index.find(block_hash_bits(family, block_hash), [&](Slot slot) {
    return blocks[slot].block_hash == block_hash && blocks[slot].family == family;
  });
}

Slot IndexEntries::find_family(const FamilyName& name) const {
  if (recent_family_ != no_slot && recent_name_ == name) return recent_family_;
  const auto found = family_slots.find(name);
  if (found == family_slots.end()) return no_slot;
  recent_name_ = name;
  return recent_family_ = found->second;
}

bool IndexEntries::is_at(const IndexRecord& record, const Tag& tag) const {
  if (!is_matched(tag) || record.block == no_slot) return !is_matched(tag) && record.block == no_slot;
  const IndexBlock& block = blocks[record.block];
  return block.block_hash == tag.block_hash && record.shard_index == tag.shard_index &&
         families[block.family].name == family_of(tag);
}

Slot IndexEntries::add_object(const Digest& digest) {
  const std::uint64_t fingerprint = fingerprint_of(digest);
  const Slot object = objects.acquire();
  objects[object] = {static_cast<std::uint32_t>(fingerprint), upper_bits(fingerprint), object | last_record_bit};
  object_index.insert(upper_bits(fingerprint), object);
  return object;
}

Slot IndexEntries::add_family(const FamilyName& name) {
  if (const Slot known = find_family(name); known != no_slot) return known;
  const Slot family = families.acquire();
  families[family] = {name, 0};
  family_slots.emplace(name, family);
  return family;
}

Slot IndexEntries::add_block(const Tag& tag) {
  const Slot family = add_family(family_of(tag));
  if (const Slot known = find_block(family, tag.block_hash); known != no_slot) return known;
  const Slot block = blocks.acquire();
  blocks[block] = {tag.block_hash, family, no_slot};
  block_index.insert(block_hash_bits(family, tag.block_hash), block);
  ++families[family].block_count;
  return block;
}

void IndexEntries::drop_block(Slot slot) {
  const IndexBlock block = blocks[slot];
  block_index.erase(block_hash_bits(block.family, block.block_hash), slot);
  blocks.release(slot);
  Family& family = families[block.family];
  if (--family.block_count > 0) return;
  family_slots.erase(family.name);
  recent_family_ = no_slot;
  families.release(block.family);
}

Slot IndexEntries::add_record(HolderId holder, Slot object, const Digest& digest, const Tag& tag) {
  if (object == no_slot) object = add_object(digest);
  const Slot slot = records.acquire();
  IndexRecord& record = records[slot];
  record = {};
  record.next = objects[object].records;
  record.holder = static_cast<std::uint16_t>(holder);
  record.phase = holders[holder].phase & 1;
  objects[object].records = slot;
  if (is_matched(tag)) {
    const Slot block = add_block(tag);
    if (!is_covered(block, holder, tag.shard_index)) record.block = block;
    record.shard_index = static_cast<std::uint8_t>(tag.shard_index);
  }
  link_front(records, holders[holder].current, slot, &IndexRecord::of_holder);
  ++holders[holder].entry_count;
  return slot;
}

void IndexEntries::add_tiers(IndexRecord& record, std::uint8_t tier_mask) {
  record.tier_mask = (record.tier_mask | tier_mask) & tier_mask_all;
  if (record.block == no_slot) return;
  each_tier(tier_mask, [&](std::uint8_t tier) { cover(record, tier); });
}

void IndexEntries::remove_tiers(IndexRecord& record, std::uint8_t tier_mask) {
  tier_mask &= record.tier_mask;
  record.tier_mask = (record.tier_mask & ~tier_mask) & tier_mask_all;
  if (record.block == no_slot) return;
  each_tier(tier_mask, [&](std::uint8_t tier) { uncover(record, tier); });
}

bool IndexEntries::is_covered(Slot block, HolderId holder, std::uint16_t shard_index) const {
  for (Slot slot = blocks[block].coverages; slot != no_slot; slot = coverages[slot].next) {
    const Coverage& coverage = coverages[slot];
    if (coverage.holder == holder && (coverage.shards >> shard_index & 1) != 0) return true;
  }
  return false;
}

void IndexEntries::cover(const IndexRecord& record, std::uint8_t tier) {
  const std::uint64_t shard = std::uint64_t{1} << record.shard_index;
  IndexBlock& block = blocks[record.block];
  for (Slot slot = block.coverages; slot != no_slot; slot = coverages[slot].next) {
    Coverage& coverage = coverages[slot];
    if (coverage.holder != record.holder || coverage.tier != tier) continue;
    coverage.shards |= shard;
    return;
  }
  const Slot slot = coverages.acquire();
  coverages[slot] = {shard, block.coverages, record.holder, tier};
  block.coverages = slot;
}

void IndexEntries::uncover(const IndexRecord& record, std::uint8_t tier) {
  Slot* place = &blocks[record.block].coverages;
  for (; *place != no_slot; place = &coverages[*place].next) {
    Coverage& coverage = coverages[*place];
    if (coverage.holder != record.holder || coverage.tier != tier) continue;
    coverage.shards &= ~(std::uint64_t{1} << record.shard_index);
    if (coverage.shards != 0) return;
    const Slot gone = *place;
    *place = coverage.next;
    coverages.release(gone);
    return;
  }
}

void IndexEntries::unmark(Slot slot) {
  IndexRecord& record = records[slot];
  if (!is_marked(record)) return;
  Holder& holder = holders[record.holder];
  unlink(records, holder.marked, slot, &IndexRecord::of_holder);
  link_front(records, holder.current, slot, &IndexRecord::of_holder);
  record.phase = holder.phase & 1;
}

void IndexEntries::mark_all(Holder& holder) {
  if (holder.marked == no_slot) {
    std::swap(holder.current, holder.marked);
    holder.phase ^= 1;
    return;
  }
  while (holder.current != no_slot) {  // the snapshot before was not finished
    const Slot slot = holder.current;
    unlink(records, holder.current, slot, &IndexRecord::of_holder);
    link_front(records, holder.marked, slot, &IndexRecord::of_holder);
    records[slot].phase ^= 1;
  }
}

// Takes the record out of its object's chain, and the object out of the index if it was the last.
void IndexEntries::unchain(Slot slot) {
  Slot end = records[slot].next;
  while (!is_object(end)) end = records[end].next;
  const Slot object = end & ~last_record_bit;
  Slot* place = &objects[object].records;
  while (*place != slot) place = &records[*place].next;
  *place = records[slot].next;
  if (!is_object(objects[object].records)) return;
  object_index.erase(objects[object].fingerprint_high, object);
  objects.release(object);
}

void IndexEntries::drop_record(Slot slot) {
  IndexRecord& record = records[slot];
  remove_tiers(record, record.tier_mask);
  if (record.block != no_slot && blocks[record.block].coverages == no_slot) drop_block(record.block);
  Holder& holder = holders[record.holder];
  unlink(records, is_marked(record) ? holder.marked : holder.current, slot, &IndexRecord::of_holder);
  --holder.entry_count;
  unchain(slot);
  records.release(slot);
}

void IndexEntries::prefetch(const Digest& digest, const Tag& tag) const {
  object_index.prefetch(upper_bits(fingerprint_of(digest)));
  if (!is_matched(tag)) return;
  if (const Slot family = find_family(family_of(tag)); family != no_slot) {
    block_index.prefetch(block_hash_bits(family, tag.block_hash));
  }
}

std::uint64_t IndexEntries::bytes() const {
  return objects.bytes() + records.bytes() + blocks.bytes() + coverages.bytes() + families.bytes() +
         object_index.bytes() + block_index.bytes() + holders.capacity() * sizeof(Holder) +
         family_slots.size() * (sizeof(FamilyName) + 4 * sizeof(void*));
}

}  // namespace moonpool
