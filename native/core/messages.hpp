// The messages of the pool protocol, version 1. Each has encode(Writer&) and a static decode(Reader&) that
// returns nullopt for anything but exactly one well-formed message. string_view and ConstBytes members of a
// decoded message point into the payload.
#pragma once

#include <array>

#include "core/block_index.hpp"
#include "core/frame.hpp"
#include "core/object_table.hpp"

namespace moonpool {

// Append only. A reply has the type of its request plus 0x100 and the same request_id.
enum class MessageType : std::uint16_t {
  hello = 1,        // client speaks first; reply: challenge
  authenticate = 2, // reply: welcome
  reserve = 3,
  commit = 4,
  abort = 5,
  put_inline = 6,   // small values: reserve, write and commit in one message; reply as commit
  write = 7,        // socket transport: bytes of a reservation; reply: Outcomes of one
  hold = 8,
  release = 9,      // one way
  read = 10,        // socket transport: bytes of a hold; reply: ReadReply
  exists = 11,
  remove = 12,
  pin = 13,
  unpin = 14,
  clear = 15,
  why = 16,
  list = 17,
  match = 18,       // node (its own blocks) and directory (everybody's)
  locate = 19,
  describe = 20,    // a JSON document about the peer, shown in /status
  stat = 21,        // reply: the JSON document of /status
  ping = 22,
  arena = 23,       // reply: ArenaReply with one file descriptor (SCM_RIGHTS)
  events = 24,      // owner to directory; reply: EventsReply
  goodbye = 25,     // orderly end: nothing of mine is in use any more; one way
  reply_bit = 0x100,
  error = 0x1ff,    // reply to anything: ErrorReply, then the connection is closed
};

using Nonce = std::array<std::byte, 16>;
inline constexpr std::uint64_t hello_magic = 0x314c4f4f504e4d4dULL;

enum class Role : std::uint8_t { client = 0, owner = 1 };

struct Hello {
  std::uint64_t magic = hello_magic;
  std::uint8_t version_min = wire_version_min, version_max = wire_version_max;
  Role role = Role::client;
  std::uint32_t process_id = 0;
  std::uint64_t incarnation = 0;  // owners: theirs
  Nonce nonce{};
  std::string_view tenant, name, site;
};
struct Challenge { std::uint8_t version = wire_version_max; std::uint64_t incarnation = 0; Nonce nonce{}; };
// proof = SipHash-128 with the cluster key over "client" | server nonce | client nonce | tenant | name.
// Welcome carries the server's own proof ("server" | client nonce | server nonce): the client checks it.
struct Authenticate { Digest proof; };
struct Welcome {
  Digest proof;
  std::uint64_t incarnation = 0, tenant_id = 0;
  ConnectionId connection = 0;
  bool shared_memory = false;  // false: another uid or an isolated tenant; values go through the socket
  bool warming = false;        // segment not populated yet, or directory still being told
  std::uint32_t small_put_bytes_max = 0;
  std::string_view node_name, site;
  std::vector<std::uint64_t> arena_bytes;
};

struct KeyRef { Digest digest; std::string_view key; };

struct Reserve { std::uint64_t incarnation = 0; std::uint32_t arena_preferred = 0; std::vector<PutSpec> items; };
struct ReserveReply { std::vector<ReserveResult> items; };
struct CommitItem { Generation generation = 0; std::uint32_t checksum = 0; };
struct Commit { std::uint64_t incarnation = 0; std::vector<CommitItem> items; };       // reply: ReserveReply
struct Abort { std::uint64_t incarnation = 0; std::vector<Generation> generations; };  // reply: Outcomes
struct InlineItem { PutSpec spec; std::uint32_t checksum = 0; ConstBytes value; };
struct PutInline { std::uint64_t incarnation = 0; std::vector<InlineItem> items; };    // reply: ReserveReply
struct Write { std::uint64_t incarnation = 0; Generation generation = 0; std::uint64_t offset = 0; ConstBytes bytes; };

struct Hold { std::uint64_t incarnation = 0; bool view = false; std::uint32_t deadline_ms = 0; std::vector<KeyRef> keys; };
struct HoldReply { std::vector<HoldResult> items; };
struct Release { std::uint64_t incarnation = 0; std::vector<Generation> generations; };
struct Read { std::uint64_t incarnation = 0; Generation generation = 0; std::uint64_t offset = 0; std::uint32_t length = 0; };
struct ReadReply { Outcome outcome; ConstBytes bytes; };

struct Keys { std::uint64_t incarnation = 0; std::vector<KeyRef> keys; };  // exists, remove, pin, unpin, why
struct ExistsReply { std::vector<HoldResult> items; };                     // status, reason, length in extent
struct Outcomes { std::vector<Outcome> items; };                           // for `why`: the reasons
struct Clear { std::uint64_t incarnation = 0, namespace_id = 0; };
struct ClearReply { std::uint64_t object_count = 0; };
struct List { std::uint64_t cursor = 0; std::uint32_t count = 0; std::string_view prefix; };
struct ListReply { std::uint64_t cursor = 0; std::vector<ObjectTable::Listed> items; };

struct Match { std::uint64_t namespace_id = 0; std::vector<std::uint64_t> block_hashes; std::vector<GroupRule> groups; };
struct HolderInfo { std::uint64_t incarnation = 0; std::string_view name, site, address; std::uint32_t block_count = 0; std::uint8_t tier_mask = 0; };
struct MatchReply { bool warming = false; std::uint32_t fetchable_block_count = 0; std::vector<HolderInfo> holders; };
struct Locate { std::vector<Digest> digests; };
struct LocateReply { bool warming = false; std::vector<HolderInfo> holders; std::vector<std::vector<std::uint16_t>> places; };  // per digest: indexes into holders

struct Describe { std::string_view document; };  // JSON, at most 64 KiB; reply: Outcomes of one
struct StatReply { ConstBytes document; };        // request: empty payload
struct ArenaRequest { std::uint32_t arena_index = 0; bool writable = false; };
struct ArenaReply { Outcome outcome; std::uint64_t bytes = 0; };

// Ordered stream of one owner: sequence counts messages from 0 on each connection; a gap closes the connection
// and the owner starts over with a snapshot.
enum class EventsPhase : std::uint8_t { live = 0, snapshot_begin = 1, snapshot_chunk = 2, snapshot_end = 3 };
struct Events { std::uint64_t incarnation = 0, sequence = 0; EventsPhase phase = EventsPhase::live; std::vector<Event> events; };
struct EventsReply { std::uint64_t sequence = 0; };  // applied up to and including

struct ErrorReply { Reason reason = Reason::protocol; std::uint8_t version_min = wire_version_min, version_max = wire_version_max; std::string_view message; };

}  // namespace moonpool
