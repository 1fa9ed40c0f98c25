#include "io/node_direct.hpp"

#include "core/siphash.hpp"
#include "io/piece_copy.hpp"
#include "io/segment.hpp"
#include "io/shared_catalogue.hpp"

namespace moonpool {
namespace {

bool lies_in(const Mapping& mapping, const Extent& extent) {
  return extent.offset >= object_header_bytes && extent.offset <= mapping.byte_count() &&
         extent.length <= mapping.byte_count() - extent.offset;
}

}  // namespace

bool is_still_there(const Mapping& mapping, const Extent& extent, Generation generation) {
  return mapping.load_u64(extent.offset - object_header_bytes + object_header::generation_at) == generation;
}

DirectReader::DirectReader(Session& session, const SipKey& secret, Deadline deadline)
    : session_(session), secret_(secret), deadline_(deadline) {
  if (session.alive()) { catalogue_ = session.catalogue(); }
}

DirectReader::~DirectReader() { session_.touched(used_); }

void DirectReader::prepare(std::span<const std::string_view> keys) {
  digests_.reserve(keys.size());
  for (const std::string_view key : keys) {
    digests_.push_back(key_digest(secret_, session_.info().tenant_id, key));
    prefetch_in_catalogue(catalogue_->words(), digests_.back());
  }
}

bool DirectReader::find(std::size_t index, KeyRead& item) {
  const std::optional<CatalogueEntry> entry = look_up(*catalogue_, digests_[index]);
  if (!entry) { return false; }
  item = {Status::hit, Reason::none, entry->extent.length, entry->checksum, entry->generation};
  return true;
}

bool DirectReader::copy(std::size_t index, std::span<const Piece> pieces, std::uint64_t length, KeyRead& item) {
  const std::optional<CatalogueEntry> entry = look_up(*catalogue_, digests_[index]);
  if (!entry || entry->extent.length != length || deadline_.passed()) { return false; }
  const Session::Arena arena = session_.arena(entry->extent.arena_index, Mapping::Access::read, deadline_);
  if (!arena.mapping || !lies_in(*arena.mapping, entry->extent)) { return false; }
  Scatter scatter(pieces);
  scatter.next(arena.mapping->bytes(entry->extent.offset, length));
  if (!is_still_there(*arena.mapping, entry->extent, entry->generation) || scatter.checksum() != entry->checksum) {
    return false;
  }
  item = {Status::hit, Reason::none, length, entry->checksum, entry->generation};
  used_.push_back(entry->generation);
  return true;
}

}  // namespace moonpool
