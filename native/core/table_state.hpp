// The inside of the object table: its records and the steps that every verb is made of.
#pragma once

#include <unordered_map>

#include "core/bundles.hpp"
#include "core/eviction.hpp"
#include "core/key_store.hpp"
#include "core/linked_slots.hpp"
#include "core/object_table.hpp"
#include "core/why_log.hpp"

namespace moonpool {

enum class Stage : std::uint8_t {
  free = 0,
  reserved = 1,   // being written; in its unit, its connection and the key index
  detached = 2,   // can no longer be committed, but its writer may still write: only its connection knows it
  committed = 3,  // in its unit and the key index
  vanished = 4,   // out of sight, kept for those who hold it
};

struct Object {
  Digest digest;
  std::uint64_t offset = 0;  // of the value in its arena
  std::uint64_t length = 0;
  std::uint64_t time_ms = 0;  // when it was reserved; once committed, when that was
  std::uint32_t arena_index = 0;
  KeyStore::Handle key = 0;
  std::uint32_t checksum = 0;
  std::uint32_t sequence = 0;  // how often the slot was used: with the slot it makes the generation
  Slot unit = no_slot;
  Link unit_link;        // among the unit's members or reservations
  Link key_link;         // among the objects of one key; a committed one comes first
  Link connection_link;  // among its writer's reservations
  ConnectionId writer = 0;
  Slot holds = no_slot;
  std::uint32_t hold_count = 0;  // holds that protect
  std::uint32_t keep_at_least_ms = 0;
  std::uint32_t keep_at_most_ms = 0;
  std::uint16_t key_bytes = 0;
  std::uint16_t shard_index = 0;
  Stage stage = Stage::free;
  std::uint8_t priority = 0;
  bool pinned = false;
  Reason detach_reason = Reason::none;

  // Header and value, as the allocator counts them.
  [[nodiscard]] std::uint64_t space_bytes() const;
  [[nodiscard]] Extent extent() const { return {arena_index, offset, length}; }
};

// All holds of one connection on one object. A release does not say which of them it ends: first come those that
// were revoked (their readers still answer), then copies, then views, so that what is still in use stays protected.
struct HoldRecord {
  ConnectionId connection = 0;
  Slot object = no_slot;
  Link object_link;
  Link connection_link;
  std::uint32_t view_count = 0;
  std::uint32_t copy_count = 0;  // protected until the latest of their deadlines
  std::uint32_t revoked_count = 0;

  [[nodiscard]] std::uint32_t active_count() const { return view_count + copy_count; }
};

struct Connection {
  Slot reservations = no_slot;  // reserved and detached ones
  Slot holds = no_slot;
  std::uint64_t reserved_bytes = 0;  // of reserved and detached objects
  std::uint64_t detached_bytes = 0;  // of the detached ones among them
  std::uint64_t held_bytes = 0;      // of objects with at least one hold that protects
  std::uint32_t reservation_count = 0;
  std::uint32_t detached_count = 0;
  std::uint32_t hold_count = 0;  // holds that protect
};

struct TableState {
  TableState(const std::vector<std::uint64_t>& arena_bytes, TableLimits table_limits);

  // Finding ----------------------------------------------------------------------------------------------
  [[nodiscard]] static std::uint64_t space_bytes_of(std::uint64_t length);
  [[nodiscard]] Generation generation_of(Slot slot) const;
  // The object of that generation whatever its stage, or no_slot.
  [[nodiscard]] Slot find_generation(Generation generation) const;
  // The object of that generation if it is reserved by, or detached from, that connection, or no_slot.
  [[nodiscard]] Slot find_reservation(ConnectionId connection, Generation generation) const;
  // The first object of that digest: the committed one if there is one, else a reserved one, or no_slot.
  [[nodiscard]] Slot find_digest(const Digest& digest) const;
  [[nodiscard]] bool same_key(Slot slot, std::string_view key, std::uint64_t tenant_id) const;
  // The visible object of that key. Otherwise no_slot, and why. Drops it when its time is over.
  [[nodiscard]] Slot find_visible(const Digest& digest, std::string_view key, std::uint64_t tenant_id,
                                  std::uint64_t now_ms, Reason& reason);
  [[nodiscard]] Reason why_invisible(const Unit& unit) const;
  [[nodiscard]] Tag tag_of(Slot slot) const;
  [[nodiscard]] Event event_of(Slot slot, EventKind kind, Reason reason) const;
  [[nodiscard]] Residency residency_of(Slot slot, bool visible) const;

  // Use and order ----------------------------------------------------------------------------------------
  void touch(Slot unit);
  // Puts the unit where it belongs: among the evictable ones, the kept ones, or neither.
  void settle(Slot unit);
  void set_expiry(Slot unit, std::uint64_t expires_at_ms);
  // Makes the unit visible if it is whole, and then its descendants that waited for it.
  void show(Slot unit);
  // Destroys the unit if nothing is left in it, then its parent likewise; settles the one that stays.
  void prune(Slot unit);

  // Room -------------------------------------------------------------------------------------------------
  // Evicts until bytes fit into one arena. False: no_room.
  [[nodiscard]] bool find_room(std::uint64_t bytes, std::uint32_t arena_preferred, std::uint64_t now_ms,
                               Extent& extent);
  [[nodiscard]] bool allocate(std::uint64_t bytes, std::uint32_t arena_index, Extent& extent);
  // The unit to be evicted first, or no_slot. Keeps that are over end here.
  [[nodiscard]] Slot next_victim(std::uint64_t now_ms);

  // Stages -----------------------------------------------------------------------------------------------
  void link_key(Slot slot);
  void unlink_key(Slot slot);
  void move_key_first(Slot slot);
  // reserved → detached: leaves its unit and the key index; the space stays.
  void detach(Slot slot, Reason reason);
  // reserved or detached → free.
  void discard_reservation(Slot slot);
  // committed → vanished or free.
  void drop_member(Slot slot, Reason reason, bool announce);
  void drop_members(Slot unit, Reason reason, bool announce);
  // The unit's members and all of its descendants' go.
  void drop_unit(Slot unit, Reason reason, bool announce = true);
  [[nodiscard]] bool expire_if_due(Slot unit, std::uint64_t now_ms);
  void free_object(Slot slot);
  void count_drop(Reason reason);

  // Holds ------------------------------------------------------------------------------------------------
  [[nodiscard]] Slot find_hold(Slot object, ConnectionId connection) const;
  [[nodiscard]] Slot add_hold_record(Slot object, ConnectionId connection);
  void remove_hold_record(Slot record);
  // count holds of the record stop protecting; the record itself stays.
  void end_protection(Slot record, std::uint32_t count);
  // Ends what has no use any more: a record that nothing is left in, an object that nobody sees or holds.
  void tidy_hold(Slot record);

  std::vector<Allocator> arenas;
  TableLimits limits;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t largest_arena_bytes = 0;
  std::uint64_t use_count = 0;

  SlotPool<Object> objects;
  KeyStore keys;
  SlotIndex key_index;
  UnitStore units;
  SlotPool<HoldRecord> holds;
  std::unordered_map<ConnectionId, Connection> connections;

  EvictionQueue evictable;
  IndexedHeap kept;            // units by the end of their keep
  IndexedHeap expirations;     // units by their expiry
  IndexedHeap hold_deadlines;  // hold records with copies
  IndexedHeap ages;            // reserved objects by time

  WhyLog why_log;
  std::vector<Event> events;
  std::vector<Residency> residencies;
  std::vector<Extent> freed;
  TableStats counts{};
  std::vector<Slot> doomed;   // scratch of drop_unit
  std::vector<Slot> waiting;  // scratch of show
};

}  // namespace moonpool
