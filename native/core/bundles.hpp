// Units: what becomes visible together and goes together. A unit is a block (tagged objects of one tenant, namespace,
// block hash and kv_group), a bundle (untagged objects of one bundle id) or one plain object.
#pragma once

#include "core/slot_pool.hpp"

namespace moonpool {

struct Unit {
  std::uint64_t tenant_id = 0;
  std::uint64_t namespace_id = 0;  // 0: not a block
  std::uint64_t name = 0;          // block hash or bundle id; 0: one plain object, in no index
  std::uint64_t parent_hash = 0;
  std::uint64_t last_use = 0;       // count of uses of the table
  std::uint64_t keep_until_ms = 0;  // 0: nothing keeps it
  std::uint64_t expires_at_ms = 0;  // 0: never
  Slot members = no_slot;           // list of its committed objects
  Slot reservations = no_slot;      // list of objects reserved for it
  Slot parent = no_slot;            // chained units: the unit they are useless without
  Slot first_child = no_slot;
  Slot sibling_before = no_slot, sibling_after = no_slot;
  std::uint32_t child_count = 0;
  std::uint32_t reservation_count = 0;
  std::uint32_t member_count = 0;
  std::uint32_t held_count = 0;    // members with holds
  std::uint32_t pinned_count = 0;  // members pinned
  std::uint16_t bundle_count = 1;
  std::uint16_t shard_count = 1;
  std::uint16_t kv_group = 0;
  std::uint8_t priority = 0;
  bool chained = false;
  bool visible = false;  // complete, and so are all its ancestors
  bool in_use = false;   // the slot holds a unit

  [[nodiscard]] bool complete() const { return member_count == bundle_count; }
  // Nothing in it or below it: nobody would miss the unit.
  [[nodiscard]] bool empty() const { return member_count == 0 && reservation_count == 0 && child_count == 0; }
  [[nodiscard]] bool evictable() const {
    return member_count > 0 && reservation_count == 0 && child_count == 0 && held_count == 0 && pinned_count == 0;
  }
};

struct UnitName {
  std::uint64_t tenant_id = 0;
  std::uint64_t namespace_id = 0;
  std::uint64_t name = 0;
  std::uint16_t kv_group = 0;
};

// Units by slot, found by name, linked to their parents.
class UnitStore {
 public:
  // The unit of that name, or no_slot. Plain objects (name 0) are never found.
  [[nodiscard]] Slot find(const UnitName& name) const;
  // Takes a slot for the unit, enters it in the index and links it below unit.parent.
  [[nodiscard]] Slot create(const Unit& unit);
  // The unit must be empty(). The parent loses a child.
  void destroy(Slot slot);
  [[nodiscard]] Unit& operator[](Slot slot) { return pool_[slot]; }
  [[nodiscard]] const Unit& operator[](Slot slot) const { return pool_[slot]; }
  [[nodiscard]] Slot end() const { return pool_.end(); }
  [[nodiscard]] std::size_t count() const { return pool_.count(); }
  // Links, child counts and the index.
  [[nodiscard]] std::string check_integrity() const;

 private:
  static std::uint32_t hash_of(const UnitName& name);
  static UnitName name_of(const Unit& unit) { return {unit.tenant_id, unit.namespace_id, unit.name, unit.kv_group}; }
  [[nodiscard]] std::string check_children(Slot slot) const;

  SlotPool<Unit> pool_;
  SlotIndex index_;
};

}  // namespace moonpool
