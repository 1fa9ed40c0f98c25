#include "core/block_index.hpp"

#include <algorithm>
#include <stdexcept>

namespace moonpool {

Event engine_block_event(EventKind kind, std::uint64_t namespace_id, std::uint64_t block_hash, std::uint16_t kv_group) {
  constexpr std::uint64_t group_step = 0x9e3779b97f4a7c15ULL;  // odd, so that no two groups share a digest
  Event event;
  event.kind = kind;
  event.digest = {block_hash, namespace_id + kv_group * group_step};
  event.tag.namespace_id = namespace_id;
  event.tag.block_hash = block_hash;
  event.tag.kv_group = kv_group;
  event.tier_mask = static_cast<std::uint8_t>(Tier::engine);
  return event;
}

BlockIndex::BlockIndex(std::uint64_t entry_count_max)
    : entry_count_max_(std::min<std::uint64_t>(entry_count_max, last_record_bit - 1)) {}

HolderId BlockIndex::add_holder() {
  auto& holders = entries_.holders;
  const auto vacant =
      std::find_if(holders.begin(), holders.end(), [](const Holder& holder) { return !holder.present; });
  const auto holder = static_cast<HolderId>(vacant - holders.begin());
  if (vacant == holders.end()) {
    if (holders.size() == holder_count_max) throw std::length_error("the block index knows 65535 holders already");
    holders.emplace_back();
  }
  holders[holder] = Holder{.present = true};
  return holder;
}

void BlockIndex::forget(HolderId holder) {
  cleared(holder);
  entries_.holder_at(holder).present = false;
}

bool BlockIndex::stored(HolderId holder, const Event& event) {
  (void)entries_.holder_at(holder);
  const std::uint8_t tier_mask = event.tier_mask & tier_mask_all;
  if (tier_mask == 0) return true;  // nowhere: nothing to know
  Slot object = entries_.find_object(event.digest);
  Slot slot = entries_.find_record(object, holder);
  if (slot != no_slot && !entries_.is_at(entries_.records[slot], event.tag)) {
    entries_.drop_record(slot);
    object = entries_.find_object(event.digest);  // gone if that was its last record
    slot = no_slot;
  }
  if (slot == no_slot) {
    if (entries_.records.count() >= entry_count_max_) {
      ++refused_full_total_;
      return false;
    }
    slot = entries_.add_record(holder, object, event.digest, event.tag);
  }
  ++stored_total_;
  IndexRecord& record = entries_.records[slot];
  entries_.add_tiers(record, tier_mask);
  if (entries_.is_marked(record)) {
    entries_.remove_tiers(record, static_cast<std::uint8_t>(~tier_mask & tier_mask_all));
    entries_.unmark(slot);
  }
  return true;
}

void BlockIndex::removed(HolderId holder, const Event& event) {
  (void)entries_.holder_at(holder);
  const Slot slot = entries_.find_record(entries_.find_object(event.digest), holder);
  if (slot == no_slot || (entries_.records[slot].tier_mask & event.tier_mask) == 0) {
    ++unknown_removed_total_;
    return;
  }
  ++removed_total_;
  IndexRecord& record = entries_.records[slot];
  entries_.remove_tiers(record, event.tier_mask);
  if (record.tier_mask == 0) entries_.drop_record(slot);
}

void BlockIndex::cleared(HolderId holder) {
  Holder& dropped = entries_.holder_at(holder);
  drop_all(dropped.current);
  drop_all(dropped.marked);
}

std::uint64_t BlockIndex::apply(HolderId holder, std::span<const Event> events) {
  constexpr std::size_t ahead = 8;
  std::uint64_t refused_count = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i + ahead < events.size()) entries_.prefetch(events[i + ahead].digest, events[i + ahead].tag);
    switch (events[i].kind) {
      case EventKind::stored: refused_count += stored(holder, events[i]) ? 0 : 1; break;
      case EventKind::removed: removed(holder, events[i]); break;
      case EventKind::cleared: cleared(holder); break;
    }
  }
  return refused_count;
}

void BlockIndex::snapshot_begin(HolderId holder) { entries_.mark_all(entries_.holder_at(holder)); }

void BlockIndex::snapshot_end(HolderId holder) { drop_all(entries_.holder_at(holder).marked); }

std::uint64_t BlockIndex::entry_count(HolderId holder) const {
  const bool present = holder < entries_.holders.size() && entries_.holders[holder].present;
  if (!present) throw std::out_of_range("no such holder in the block index");
  return entries_.holders[holder].entry_count;
}

void BlockIndex::drop_all(Slot& first) {
  while (first != no_slot) entries_.drop_record(first);
}

void BlockIndex::locate(const Digest& digest, std::vector<HolderId>& into) const {
  const Slot object = entries_.find_object(digest);
  if (object == no_slot) return;
  for (Slot slot = entries_.objects[object].records; (slot & last_record_bit) == 0;
       slot = entries_.records[slot].next) {
    into.push_back(entries_.records[slot].holder);
  }
}

IndexStats BlockIndex::stats() const {
  const auto& holders = entries_.holders;
  const auto present =
      std::count_if(holders.begin(), holders.end(), [](const Holder& holder) { return holder.present; });
  return {.holder_count = static_cast<std::uint64_t>(present),
          .object_count = entries_.objects.count(),
          .block_count = entries_.blocks.count(),
          .entry_count = entries_.records.count(),
          .bytes = entries_.bytes(),
          .stored_total = stored_total_,
          .removed_total = removed_total_,
          .unknown_removed_total = unknown_removed_total_,
          .refused_full_total = refused_full_total_};
}

}  // namespace moonpool
