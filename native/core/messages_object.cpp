#include "core/messages_object.hpp"

#include "core/messages_codec.hpp"

namespace moonpool {

template <class Codec>
void fields(Codec& codec, Like<PutSpec> auto& spec) {
  codec(spec.digest);
  codec.key(spec.key);
  codec(spec.tenant_id, spec.length, spec.tag, spec.bundle_id, spec.bundle_count, spec.priority, spec.keep_at_least_ms,
        spec.keep_at_most_ms);
  codec.require(spec.bundle_count > 0);
}

template <class Codec>
void fields(Codec& codec, Like<Reserve> auto& reserve) {
  codec(reserve.incarnation, reserve.arena_preferred, reserve.items);
}

template <class Codec>
void fields(Codec& codec, Like<ReserveResult> auto& result) {
  codec(result.status, result.reason, result.generation, result.extent, result.present_checksum, result.present_length);
}

template <class Codec>
void fields(Codec& codec, Like<ReserveReply> auto& reply) {
  codec(reply.items, reply.grants);
  codec.require(reply.grants.empty() || reply.grants.size() == reply.items.size());
}

template <class Codec>
void fields(Codec& codec, Like<CommitItem> auto& item) {
  codec(item.generation, item.checksum);
}

template <class Codec>
void fields(Codec& codec, Like<Commit> auto& commit) {
  codec(commit.incarnation, commit.items);
}

template <class Codec>
void fields(Codec& codec, Like<Abort> auto& abort) {
  codec(abort.incarnation, abort.generations);
}

template <class Codec>
void fields(Codec& codec, Like<InlineItem> auto& item) {
  codec(item.spec, item.checksum);
  codec.blob(item.value);
  codec.require(item.spec.length == item.value.size());
}

template <class Codec>
void fields(Codec& codec, Like<PutInline> auto& put) {
  codec(put.incarnation, put.items);
}

template <class Codec>
void fields(Codec& codec, Like<Write> auto& write) {
  codec(write.incarnation, write.generation, write.offset);
  codec.blob(write.bytes);
  codec.require(write.offset + write.bytes.size() >= write.offset);
}

template <class Codec>
void fields(Codec& codec, Like<Hold> auto& hold) {
  codec(hold.incarnation, hold.view, hold.deadline_ms, hold.keys);
}

template <class Codec>
void fields(Codec& codec, Like<HoldResult> auto& result) {
  codec(result.status, result.reason, result.generation, result.extent, result.checksum);
}

template <class Codec>
void fields(Codec& codec, Like<HoldReply> auto& reply) {
  codec(reply.items, reply.grants);
  codec.require(reply.grants.empty() || reply.grants.size() == reply.items.size());
}

template <class Codec>
void fields(Codec& codec, Like<Release> auto& release) {
  codec(release.incarnation, release.generations);
}

template <class Codec>
void fields(Codec& codec, Like<Read> auto& read) {
  codec(read.incarnation, read.generation, read.offset, read.length);
  codec.require(read.offset + read.length >= read.offset && read.length <= frame_payload_bytes_max);
}

template <class Codec>
void fields(Codec& codec, Like<ReadReply> auto& reply) {
  codec(reply.outcome);
  codec.blob(reply.bytes);
}

template <class Codec>
void fields(Codec& codec, Like<Keys> auto& keys) {
  codec(keys.incarnation, keys.keys);
}

template <class Codec>
void fields(Codec& codec, Like<ExistsReply> auto& reply) {
  codec(reply.items);
}

template <class Codec>
void fields(Codec& codec, Like<Outcomes> auto& outcomes) {
  codec(outcomes.items);
}

template <class Codec>
void fields(Codec& codec, Like<Clear> auto& clear) {
  codec(clear.incarnation, clear.namespace_id);
}

template <class Codec>
void fields(Codec& codec, Like<ClearReply> auto& reply) {
  codec(reply.object_count);
}

template <class Codec>
void fields(Codec& codec, Like<List> auto& list) {
  codec(list.cursor, list.count);
  codec.key(list.prefix);
  codec.require(list.count <= batch_count_max);
}

template <class Codec>
void fields(Codec& codec, Like<ObjectTable::Listed> auto& item) {
  codec.key(item.key);
  codec(item.length, item.tag, item.pinned, item.checksum, item.age_ms);
}

template <class Codec>
void fields(Codec& codec, Like<ListReply> auto& reply) {
  codec(reply.cursor, reply.items);
}

template <class Codec>
void fields(Codec& codec, Like<ArenaRequest> auto& request) {
  codec(request.arena_index, request.writable);
}

template <class Codec>
void fields(Codec& codec, Like<ArenaReply> auto& reply) {
  codec(reply.outcome, reply.bytes);
}

void Reserve::encode(Writer& into) const { write_message(*this, into); }
void ReserveReply::encode(Writer& into) const { write_message(*this, into); }
void Commit::encode(Writer& into) const { write_message(*this, into); }
void Abort::encode(Writer& into) const { write_message(*this, into); }
void PutInline::encode(Writer& into) const { write_message(*this, into); }
void Write::encode(Writer& into) const { write_message(*this, into); }
void Hold::encode(Writer& into) const { write_message(*this, into); }
void HoldReply::encode(Writer& into) const { write_message(*this, into); }
void Release::encode(Writer& into) const { write_message(*this, into); }
void Read::encode(Writer& into) const { write_message(*this, into); }
void ReadReply::encode(Writer& into) const { write_message(*this, into); }
void Keys::encode(Writer& into) const { write_message(*this, into); }
void ExistsReply::encode(Writer& into) const { write_message(*this, into); }
void Outcomes::encode(Writer& into) const { write_message(*this, into); }
void Clear::encode(Writer& into) const { write_message(*this, into); }
void ClearReply::encode(Writer& into) const { write_message(*this, into); }
void List::encode(Writer& into) const { write_message(*this, into); }
void ListReply::encode(Writer& into) const { write_message(*this, into); }
void ArenaRequest::encode(Writer& into) const { write_message(*this, into); }
void ArenaReply::encode(Writer& into) const { write_message(*this, into); }

std::optional<Reserve> Reserve::decode(Reader& from) { return read_message<Reserve>(from); }
std::optional<ReserveReply> ReserveReply::decode(Reader& from) { return read_message<ReserveReply>(from); }
std::optional<Commit> Commit::decode(Reader& from) { return read_message<Commit>(from); }
std::optional<Abort> Abort::decode(Reader& from) { return read_message<Abort>(from); }
std::optional<PutInline> PutInline::decode(Reader& from) { return read_message<PutInline>(from); }
std::optional<Write> Write::decode(Reader& from) { return read_message<Write>(from); }
std::optional<Hold> Hold::decode(Reader& from) { return read_message<Hold>(from); }
std::optional<HoldReply> HoldReply::decode(Reader& from) { return read_message<HoldReply>(from); }
std::optional<Release> Release::decode(Reader& from) { return read_message<Release>(from); }
std::optional<Read> Read::decode(Reader& from) { return read_message<Read>(from); }
std::optional<ReadReply> ReadReply::decode(Reader& from) { return read_message<ReadReply>(from); }
std::optional<Keys> Keys::decode(Reader& from) { return read_message<Keys>(from); }
std::optional<ExistsReply> ExistsReply::decode(Reader& from) { return read_message<ExistsReply>(from); }
std::optional<Outcomes> Outcomes::decode(Reader& from) { return read_message<Outcomes>(from); }
std::optional<Clear> Clear::decode(Reader& from) { return read_message<Clear>(from); }
std::optional<ClearReply> ClearReply::decode(Reader& from) { return read_message<ClearReply>(from); }
std::optional<List> List::decode(Reader& from) { return read_message<List>(from); }
std::optional<ListReply> ListReply::decode(Reader& from) { return read_message<ListReply>(from); }
std::optional<ArenaRequest> ArenaRequest::decode(Reader& from) { return read_message<ArenaRequest>(from); }
std::optional<ArenaReply> ArenaReply::decode(Reader& from) { return read_message<ArenaReply>(from); }

}  // namespace moonpool
