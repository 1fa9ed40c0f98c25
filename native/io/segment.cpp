#include "io/segment.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace moonpool {
namespace {

constexpr std::uint64_t page_bytes = 4'096;
constexpr std::uint64_t populate_step_bytes = 16ULL << 20U;

std::uint64_t header_offset(const Extent& extent) { return extent.offset - object_header_bytes; }

}  // namespace

Segment::Segment(const std::string& label, std::uint64_t segment_bytes, std::uint64_t arena_bytes) {
  if (arena_bytes < page_bytes || segment_bytes < page_bytes) {
    throw std::invalid_argument("segment_bytes and arena_bytes must be at least 4096");
  }
  std::uint64_t left = segment_bytes / page_bytes * page_bytes;
  const std::uint64_t whole = std::min(arena_bytes, left) / page_bytes * page_bytes;
  while (left > 0) {
    const std::uint64_t byte_count = std::min(whole, left);
    Arena arena;
    arena.file = make_memory_file("moonpool-" + label, byte_count);
    arena.file_for_reading = reopen_for_reading(arena.file);
    arena.mapping = std::make_unique<Mapping>(arena.file, byte_count, Mapping::Access::write);
    arenas_.push_back(std::move(arena));
    left -= byte_count;
  }
}

std::vector<std::uint64_t> Segment::arena_bytes() const {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(arenas_.size());
  for (const Arena& arena : arenas_) { sizes.push_back(arena.mapping->byte_count()); }
  return sizes;
}

bool Segment::populate(const std::atomic<bool>& stopping, std::atomic<std::uint64_t>& populated_bytes) const {
  for (const Arena& arena : arenas_) {
    for (std::uint64_t offset = 0; offset < arena.mapping->byte_count(); offset += populate_step_bytes) {
      const std::uint64_t step = std::min(populate_step_bytes, arena.mapping->byte_count() - offset);
      if (stopping.load() || !arena.mapping->populate(offset, step)) { return false; }
      populated_bytes.fetch_add(step);
    }
  }
  return true;
}

void Segment::write_header(const Extent& extent, Generation generation, const Digest& digest) {
  Mapping& mapping = *arenas_.at(extent.arena_index).mapping;
  const std::uint64_t at = header_offset(extent);
  mapping.store_u64(at + object_header::magic_at, object_header::magic);
  mapping.store_u64(at + object_header::digest_low_at, digest.low);
  mapping.store_u64(at + object_header::digest_high_at, digest.high);
  mapping.store_u64(at + object_header::length_at, extent.length);
  mapping.store_u64(at + object_header::checksum_at, 0);
  mapping.store_u64(at + object_header::generation_at, generation);
}

void Segment::write_checksum(const Extent& extent, std::uint32_t checksum) {
  arenas_.at(extent.arena_index).mapping->store_u64(header_offset(extent) + object_header::checksum_at, checksum);
}

void Segment::invalidate(const Extent& extent) {
  arenas_.at(extent.arena_index).mapping->store_u64(header_offset(extent) + object_header::generation_at, 0);
}

ConstBytes Segment::value(const Extent& extent) const {
  return arenas_.at(extent.arena_index).mapping->bytes(extent.offset, extent.length);
}

MutableBytes Segment::mutable_value(const Extent& extent) {
  return arenas_.at(extent.arena_index).mapping->mutable_bytes(extent.offset, extent.length);
}

Descriptor Segment::lend(std::uint32_t arena_index, bool can_write) const {
  const Arena& arena = arenas_.at(arena_index);
  Descriptor copy(::fcntl((can_write ? arena.file : arena.file_for_reading).number(), F_DUPFD_CLOEXEC, 0));
  if (!copy.open()) { throw std::system_error(errno, std::generic_category(), "cannot lend an arena"); }
  return copy;
}

}  // namespace moonpool
