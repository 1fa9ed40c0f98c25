#include "core/bundles.hpp"

namespace moonpool {

std::uint32_t UnitStore::hash_of(const UnitName& name) {
  const std::uint64_t place = mixed(name.namespace_id + mixed(name.tenant_id + name.kv_group));
  return static_cast<std::uint32_t>(mixed(name.name + place));
}

Slot UnitStore::find(const UnitName& name) const {
  if (name.name == 0) return no_slot;
  return index_.find(hash_of(name), [&](Slot slot) {
    const Unit& unit = pool_[slot];
    return unit.name == name.name && unit.namespace_id == name.namespace_id && unit.tenant_id == name.tenant_id &&
           unit.kv_group == name.kv_group;
  });
}

Slot UnitStore::create(const Unit& unit) {
  const Slot slot = pool_.acquire();
  Unit& created = pool_[slot];
  created = unit;
  created.in_use = true;
  if (unit.name != 0) index_.insert(hash_of(name_of(unit)), slot);
  if (unit.parent == no_slot) return slot;
  Unit& parent = pool_[unit.parent];
  created.sibling_after = parent.first_child;
  if (parent.first_child != no_slot) pool_[parent.first_child].sibling_before = slot;
  parent.first_child = slot;
  ++parent.child_count;
  return slot;
}

void UnitStore::destroy(Slot slot) {
  Unit& unit = pool_[slot];
  if (unit.name != 0) index_.erase(hash_of(name_of(unit)), slot);
  if (unit.parent != no_slot) {
    Unit& parent = pool_[unit.parent];
    (unit.sibling_before == no_slot ? parent.first_child : pool_[unit.sibling_before].sibling_after) =
        unit.sibling_after;
    if (unit.sibling_after != no_slot) pool_[unit.sibling_after].sibling_before = unit.sibling_before;
    --parent.child_count;
  }
  unit = Unit{};
  pool_.release(slot);
}

std::string UnitStore::check_children(Slot slot) const {
  const Unit& unit = pool_[slot];
  std::uint32_t child_count = 0;
  Slot before = no_slot;
  for (Slot child = unit.first_child; child != no_slot; child = pool_[child].sibling_after) {
    if (++child_count > unit.child_count) return "units: more children than counted";
    const Unit& below = pool_[child];
    if (!below.in_use || below.parent != slot || below.sibling_before != before)
      return "units: a child's links are wrong";
    if (below.parent_hash != unit.name || below.namespace_id != unit.namespace_id ||
        below.tenant_id != unit.tenant_id || below.kv_group != unit.kv_group)
      return "units: a child under a foreign parent";
    if (below.member_count > 0 && unit.member_count == 0) return "units: a block outlives its parent";
    if (below.visible && !unit.visible) return "units: a visible block under an invisible parent";
    before = child;
  }
  return child_count == unit.child_count ? std::string{} : "units: fewer children than counted";
}

std::string UnitStore::check_integrity() const {
  std::size_t unit_count = 0, named_count = 0, child_count = 0, with_parent_count = 0;
  for (Slot slot = 0; slot < pool_.end(); ++slot) {
    const Unit& unit = pool_[slot];
    if (!unit.in_use) continue;
    ++unit_count;
    if (unit.empty()) return "units: an empty unit was not destroyed";
    if (unit.name != 0) {
      ++named_count;
      if (find(name_of(unit)) != slot) return "units: a unit is not in the index";
    }
    with_parent_count += unit.parent != no_slot;
    child_count += unit.child_count;
    if (unit.chained && unit.parent_hash != 0 && unit.parent == no_slot) return "units: a chained unit without parent";
    std::string problem = check_children(slot);
    if (!problem.empty()) return problem;
  }
  if (unit_count != pool_.count()) return "units: the count is wrong";
  if (named_count != index_.count()) return "units: the index is too large";
  return child_count == with_parent_count ? std::string{} : "units: a child is in no list";
}

}  // namespace moonpool
