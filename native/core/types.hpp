// Plain values shared by every room of the native core.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moonpool {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline constexpr std::size_t key_bytes_max = 1024;
// Every object in a segment is preceded by one header of this size (see ObjectHeader in io/segment.hpp).
inline constexpr std::uint64_t object_header_bytes = 64;
// Objects start and end on this boundary.
inline constexpr std::uint64_t allocation_align_bytes = 64;

// Keyed 128-bit SipHash of tenant and key: what indexes and the wire carry instead of the key.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Tiers are bits, so that one byte is a tier mask.
enum class Tier : std::uint8_t { engine = 1, dram = 2, disk = 4, cold = 8 };
inline constexpr std::uint8_t tier_mask_all = 15;

// What `match` works on. namespace_id 0 means "no tag". Hashes are 64-bit hints; the key holds the whole truth.
struct Tag {
  std::uint64_t namespace_id = 0;
  std::uint64_t block_hash = 0;
  std::uint64_t parent_hash = 0;   // 0: the first block of a chain
  std::uint16_t shard_index = 0;
  std::uint16_t shard_count = 1;
  std::uint16_t bundle_count = 1;  // shards of this block that this node is to get; visible and evicted together
  std::uint16_t kv_group = 0;
  bool chained = true;  // full-attention rule: useless without its parent; false for window and state groups
  [[nodiscard]] bool present() const { return namespace_id != 0; }
  friend bool operator==(const Tag&, const Tag&) = default;
};

// Result of one key of a put, a read or a look-up. Append only: the numbers are on the wire.
enum class Status : std::uint8_t {
  stored = 0,  // put: committed by this call
  present = 1,  // put: somebody committed it before, same length
  conflict = 2,  // put: present with another length or checksum
  no_room = 3,  // put: nothing may be evicted for it
  refused = 4,  // put: see Reason
  hit = 5,  // read, exists
  miss = 6,  // read, exists: see Reason
  done = 7,  // remove, pin, unpin, release
};
inline constexpr Status status_last = Status::done;  // greater numbers are refused on the wire

// Why. Append only: the numbers are on the wire.
enum class Reason : std::uint8_t {
  none = 0,
  never_stored = 1,
  evicted = 2,
  expired = 3,
  removed = 4,
  damaged = 5,  // checksum, length or generation did not fit
  incomplete_bundle = 6,  // committed, but other members of its bundle are not
  not_committed = 7,  // reserved, its writer has not committed yet
  no_parent = 8,  // a chained block whose parent is not on this node
  key_too_long = 9,
  value_too_large = 10,
  wrong_length = 11,  // the destination does not have the object's length
  connection_limit = 12,  // a cap per connection: held, reserved or pinned bytes
  not_yours = 13,  // the reservation or hold belongs to another connection, or is gone
  deadline = 14,  // the reservation or copy hold ended before the work was done
  unavailable = 15,  // no connection to the peer
  timed_out = 16,
  digest_collision = 17,
  warming = 18,  // the segment is not populated yet
  access_denied = 19,  // another tenant's, or the verb is not allowed
  wrong_incarnation = 20,
  cleared = 21,  // all objects of the namespace or node were dropped
  engine_gave_up = 22,  // set by connectors: load failed once, recomputed
  bad_request = 23,
  protocol = 24,  // the peer spoke an unknown version or malformed bytes
  unknown_region = 25,  // no region or grant has this token (any more)
  out_of_range = 26,  // the slice does not lie inside the region
  read_only = 27,  // a write into a region that may only be read
  cancelled = 28,  // given up by its caller
};
inline constexpr Reason reason_last = Reason::cancelled;  // greater numbers are refused on the wire

// Where an object's value lies. offset is that of the value; the header lies object_header_bytes before it.
struct Extent {
  std::uint32_t arena_index = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// Names one residency of one object on one incarnation; never reused.
using Generation = std::uint64_t;
// Names a client connection inside one node.
using ConnectionId = std::uint32_t;

}  // namespace moonpool
