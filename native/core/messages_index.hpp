// Messages of look-ups across holders, and the stream of events that feeds them.
#pragma once

#include "core/block_index.hpp"
#include "core/frame.hpp"
#include "core/object_table.hpp"
#include "core/types.hpp"

namespace moonpool {

inline constexpr std::size_t group_count_max = 64;  // kv_groups of one match

struct Match {
  std::uint64_t namespace_id = 0;
  std::vector<std::uint64_t> block_hashes{};
  std::vector<GroupRule> groups{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Match> decode(Reader& from);
};

struct HolderInfo {
  std::uint64_t incarnation = 0;
  std::string_view name{}, site{}, address{};
  std::uint32_t block_count = 0;
  std::uint8_t tier_mask = 0;
};

struct MatchReply {
  bool warming = false;
  std::uint32_t fetchable_block_count = 0;
  std::vector<HolderInfo> holders{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<MatchReply> decode(Reader& from);
};

struct Locate {
  std::vector<Digest> digests{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Locate> decode(Reader& from);
};

struct LocateReply {
  bool warming = false;
  std::vector<HolderInfo> holders{};
  std::vector<std::vector<std::uint16_t>> places{};  // per digest: indexes into holders
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<LocateReply> decode(Reader& from);
};

// Ordered stream of one owner: sequence counts messages from 0 on each connection; a gap closes the connection
// and the owner starts over with a snapshot.
enum class EventsPhase : std::uint8_t { live = 0, snapshot_begin = 1, snapshot_chunk = 2, snapshot_end = 3 };

struct Events {
  std::uint64_t incarnation = 0, sequence = 0;
  EventsPhase phase = EventsPhase::live;
  std::vector<Event> events{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Events> decode(Reader& from);
};

struct EventsReply {  // applied up to and including
  std::uint64_t sequence = 0;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<EventsReply> decode(Reader& from);
};

}  // namespace moonpool
