// The truth about one node's bytes: who is reserved, committed, held, pinned, where, and who goes first.
// Pure: no clock, thread or memory access. The caller serialises calls and passes now_ms (boot-time clock).
#pragma once

#include <memory>

#include "core/allocator.hpp"
#include "core/types.hpp"

namespace moonpool {

struct TableLimits {
  std::uint64_t object_count_max = 4'000'000;
  std::uint64_t held_bytes_per_connection_max = 0;      // 0: half of the capacity
  std::uint64_t reserved_bytes_per_connection_max = 0;  // 0: half of the capacity
  std::uint64_t pinned_bytes_max = 0;                   // 0: half of the capacity
  std::uint32_t holds_per_connection_max = 65'536;
  std::uint32_t reservations_per_connection_max = 65'536;
  std::uint32_t why_count_max = 262'144;  // how many gone objects `why` remembers
};

struct PutSpec {
  Digest digest;
  std::string_view key;         // compared whole against the resident object's key
  std::uint64_t tenant_id = 0;  // objects of different tenants never meet
  std::uint64_t length = 0;
  Tag tag;
  std::uint64_t bundle_id = 0;  // untagged objects only: members of one bundle carry the same id and count
  std::uint16_t bundle_count = 1;
  std::uint8_t priority = 0;  // leaves of a lower priority are evicted first, each priority by last use
  std::uint32_t keep_at_least_ms = 0;
  std::uint32_t keep_at_most_ms = 0;  // 0: no expiry
};

struct ReserveResult {
  Status status = Status::refused;  // stored here means: reserved, go and write
  Reason reason = Reason::none;
  Generation generation = 0;
  Extent extent;
  std::uint32_t present_checksum = 0;  // with present or conflict
  std::uint64_t present_length = 0;
};

struct HoldResult {
  Status status = Status::miss;
  Reason reason = Reason::none;
  Generation generation = 0;
  Extent extent;
  std::uint32_t checksum = 0;
};

struct Outcome {
  Status status = Status::done;
  Reason reason = Reason::none;
};

enum class EventKind : std::uint8_t { stored = 0, removed = 1, cleared = 2 };

// What a directory is told. One event an object, emitted when it becomes visible and when it stops being so.
struct Event {
  EventKind kind = EventKind::stored;
  Digest digest;
  Tag tag;
  std::uint64_t tenant_id = 0;
  std::uint64_t length = 0;
  std::uint8_t tier_mask = static_cast<std::uint8_t>(Tier::dram);
  Reason reason = Reason::none;  // removed: evicted, expired, removed, damaged
};

// An object that came into sight or went out of it, for whoever keeps account of where things lie.
struct Residency {
  bool visible = false;
  bool expires = false;
  std::uint32_t checksum = 0;
  std::uint64_t tenant_id = 0;
  Digest digest;
  Generation generation = 0;
  Extent extent;
};

struct TableStats {
  std::uint64_t capacity_bytes, used_bytes, committed_bytes, reserved_bytes, held_bytes, pinned_bytes,
      quarantined_bytes;
  std::uint64_t object_count, reservation_count, hold_count, pin_count, quarantined_count;
  std::uint64_t stored_total, present_total, conflict_total, no_room_total, refused_total;
  std::uint64_t hit_total, miss_total, evicted_total, expired_total, removed_total, damaged_total, aborted_total;
};

struct TableState;

class ObjectTable {
 public:
  ObjectTable(const std::vector<std::uint64_t>& arena_bytes, TableLimits limits);
  ~ObjectTable();
  ObjectTable(ObjectTable&&) noexcept;
  ObjectTable& operator=(ObjectTable&&) noexcept;

  // Puts -------------------------------------------------------------------------------------------------
  // Finds room (evicting least recently used leaves, whole bundles), preferring arena_preferred. A chained
  // tag needs its parent on this node (committed, or reserved by the same connection). A reservation never
  // blocks a key: several may exist for one key; the first commit wins and the others learn `present`.
  ReserveResult reserve(const PutSpec& spec, ConnectionId connection, std::uint32_t arena_preferred,
                        std::uint64_t now_ms);
  // stored, or present/conflict when another commit of the key came first (the space is freed at once),
  // or refused(not_yours | deadline | no_parent | cleared). stored carries the extent, generation and checksum.
  ReserveResult commit(ConnectionId connection, Generation generation, std::uint32_t checksum, std::uint64_t now_ms);
  Outcome abort(ConnectionId connection, Generation generation);
  // Reservations older than this stop being committable and are quarantined: their space is kept until the
  // writer answers (commit or abort, both refused(deadline), which proves that it has stopped writing) or dies.
  void quarantine_reservations_older_than(std::uint64_t reserved_before_ms);

  // Reads ------------------------------------------------------------------------------------------------
  // Touches the object, holds it until release(). deadline_ms 0: a view, held until released or the connection dies.
  // Each hold needs its own release. When a connection has several on one object, a release ends first those that
  // were revoked (refused(deadline)), then copies, then views.
  HoldResult hold(const Digest& digest, std::string_view key, std::uint64_t tenant_id, ConnectionId connection,
                  std::uint64_t deadline_ms, std::uint64_t now_ms);
  Outcome release(ConnectionId connection, Generation generation);
  // Copy holds whose deadline passed stop protecting: their readers re-check the generation.
  void revoke_holds(std::uint64_t now_ms);
  // Somebody read the visible object of that generation without a hold: it is used now, as by hold(). A miss when it
  // is out of sight.
  HoldResult touch(Generation generation, std::uint64_t tenant_id);
  // Holds nothing, touches nothing.
  HoldResult peek(const Digest& digest, std::string_view key, std::uint64_t tenant_id, std::uint64_t now_ms);

  // Everything else --------------------------------------------------------------------------------------
  Outcome remove(const Digest& digest, std::string_view key, std::uint64_t tenant_id, Reason reason,
                 std::uint64_t now_ms);
  Outcome pin(const Digest& digest, std::string_view key, std::uint64_t tenant_id, std::uint64_t now_ms);
  Outcome unpin(const Digest& digest, std::string_view key, std::uint64_t tenant_id);
  // Drops every object of the namespace (0: of all). Held ones vanish now and are freed when let go. What is
  // reserved there can no longer be committed: refused(cleared).
  std::uint64_t clear(std::uint64_t namespace_id, std::uint64_t now_ms);
  // The connection's process is gone: holds are let go, reservations and quarantine freed.
  void drop_connection(ConnectionId connection);
  // The connection is gone but its process may still write: holds stay, reservations are quarantined.
  void quarantine_connection(ConnectionId connection);
  void expire(std::uint64_t now_ms, std::uint32_t count_max);

  // One connection's own ----------------------------------------------------------------------------------
  struct ConnectionStats {
    std::uint64_t held_bytes = 0, reserved_bytes = 0, quarantined_bytes = 0;
    std::uint32_t hold_count = 0, reservation_count = 0, quarantined_count = 0;
  };
  // All zero: nothing of it is left.
  [[nodiscard]] ConnectionStats connection_stats(ConnectionId connection) const;
  // hit with the extent while a hold of that connection protects, else miss(not_yours | deadline).
  [[nodiscard]] HoldResult held(ConnectionId connection, Generation generation) const;
  // stored with the extent while that connection may commit, else refused(not_yours | deadline | cleared).
  [[nodiscard]] ReserveResult reserved(ConnectionId connection, Generation generation) const;

  // Why is this key not here? Bounded memory of what went; never_stored when nothing is known.
  [[nodiscard]] Reason why(const Digest& digest) const;
  // Appends what happened since the last call. Events and freed extents pile up until they are taken.
  void take_events(std::vector<Event>& into);
  // Appends what came into sight and went out of it since the last call, clear() included.
  void take_residencies(std::vector<Residency>& into);
  // Appends the extents whose space went back to the allocator since the last call; some may be in use again.
  void take_freed(std::vector<Extent>& into);
  // Visible objects from cursor on, at most count_max slots looked at; returns the next cursor, 0 at the end.
  std::uint64_t snapshot(std::uint64_t cursor, std::uint32_t count_max, std::vector<Event>& into) const;
  // Visible objects for `ls`: keys with their extents, from cursor on; returns the next cursor, 0 at the end.
  struct Listed {
    std::string key;
    std::uint64_t length = 0;
    Tag tag;
    bool pinned = false;
    std::uint32_t checksum = 0;
    std::uint64_t age_ms = 0;
  };
  std::uint64_t list(std::uint64_t tenant_id, std::string_view prefix, std::uint64_t cursor, std::uint32_t count_max,
                     std::uint64_t now_ms, std::vector<Listed>& into) const;
  [[nodiscard]] TableStats stats() const;
  // Empty when every count, list and extent agrees, else what is wrong.
  [[nodiscard]] std::string check_integrity() const;

 private:
  std::unique_ptr<TableState> state_;
};

}  // namespace moonpool
