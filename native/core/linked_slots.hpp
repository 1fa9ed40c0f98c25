// Doubly linked lists through members of slots.
#pragma once

#include "core/slot_pool.hpp"

namespace moonpool {

struct Link {
  Slot before = no_slot;
  Slot after = no_slot;
};

template <typename Value>
void link_front(SlotPool<Value>& pool, Slot& head, Slot slot, Link Value::* link) {
  pool[slot].*link = {no_slot, head};
  if (head != no_slot) (pool[head].*link).before = slot;
  head = slot;
}

template <typename Value>
void unlink(SlotPool<Value>& pool, Slot& head, Slot slot, Link Value::* link) {
  const Link links = pool[slot].*link;
  if (links.before == no_slot) {
    head = links.after;
  } else {
    (pool[links.before].*link).after = links.after;
  }
  if (links.after != no_slot) (pool[links.after].*link).before = links.before;
  pool[slot].*link = {};
}

}  // namespace moonpool
