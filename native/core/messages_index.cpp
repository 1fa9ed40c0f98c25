#include "core/messages_index.hpp"

#include "core/messages_codec.hpp"

namespace moonpool {

template <class Codec>
void fields(Codec& codec, Like<GroupRule> auto& group) {
  codec(group.kv_group, group.shard_count, group.window_block_count);
  codec.require(group.shard_count > 0);
}

template <class Codec>
void fields(Codec& codec, Like<Match> auto& match) {
  codec(match.namespace_id, match.block_hashes, match.groups);
  codec.require(match.namespace_id != 0 && !match.groups.empty() && match.groups.size() <= group_count_max);
}

template <class Codec>
void fields(Codec& codec, Like<MatchReply> auto& reply) {
  codec(reply.warming, reply.fetchable_block_count, reply.holders);
}

template <class Codec>
void fields(Codec& codec, Like<Locate> auto& locate) {
  codec(locate.digests);
}

template <class Codec>
void fields(Codec& codec, Like<LocateReply> auto& reply) {
  codec(reply.warming, reply.holders, reply.places);
  for (const auto& place : reply.places) {
    for (const std::uint16_t holder : place) codec.require(holder < reply.holders.size());
  }
}

template <class Codec>
void fields(Codec& codec, Like<Event> auto& event) {
  codec(event.kind, event.digest, event.tag, event.tenant_id, event.length, event.tier_mask, event.reason);
  codec.require((event.tier_mask & ~tier_mask_all) == 0);
}

template <class Codec>
void fields(Codec& codec, Like<Events> auto& events) {
  codec(events.incarnation, events.sequence, events.phase, events.events);
}

template <class Codec>
void fields(Codec& codec, Like<EventsReply> auto& reply) {
  codec(reply.sequence);
}

void Match::encode(Writer& into) const { write_message(*this, into); }
void MatchReply::encode(Writer& into) const { write_message(*this, into); }
void Locate::encode(Writer& into) const { write_message(*this, into); }
void LocateReply::encode(Writer& into) const { write_message(*this, into); }
void Events::encode(Writer& into) const { write_message(*this, into); }
void EventsReply::encode(Writer& into) const { write_message(*this, into); }

std::optional<Match> Match::decode(Reader& from) { return read_message<Match>(from); }
std::optional<MatchReply> MatchReply::decode(Reader& from) { return read_message<MatchReply>(from); }
std::optional<Locate> Locate::decode(Reader& from) { return read_message<Locate>(from); }
std::optional<LocateReply> LocateReply::decode(Reader& from) { return read_message<LocateReply>(from); }
std::optional<Events> Events::decode(Reader& from) { return read_message<Events>(from); }
std::optional<EventsReply> EventsReply::decode(Reader& from) { return read_message<EventsReply>(from); }

}  // namespace moonpool
