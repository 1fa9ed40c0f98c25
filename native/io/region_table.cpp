#include "io/region_table.hpp"

#include <algorithm>
#include <stdexcept>

#include "io/handshake.hpp"

namespace moonpool {

Digest RegionTable::add(const RegionSpec& spec) {
  check_piece(spec.memory);
  const std::uint64_t begin = spec.memory.address;
  const std::uint64_t end = begin + spec.memory.length;
  const std::lock_guard lock(mutex_);
  if (regions_.size() >= region_count_max_) { throw std::length_error("too many regions are registered"); }
  const auto after = by_address_.lower_bound(begin);
  const bool overlaps_before = after != by_address_.begin() && [&] {
    const auto& [address, token] = *std::prev(after);
    return address + regions_.at(token).spec.memory.length > begin;
  }();
  if (overlaps_before || (after != by_address_.end() && after->first < end)) {
    throw std::invalid_argument("the memory overlaps a registered region");
  }
  const Digest token{random_u64(), random_u64()};
  regions_.emplace(token, Region{spec});
  by_address_.emplace(begin, token);
  return token;
}

bool RegionTable::remove(const Digest& token, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto found = regions_.find(token);
  if (found == regions_.end()) { return true; }
  if (!found->second.leaving) {
    found->second.leaving = true;
    by_address_.erase(found->second.spec.memory.address);
  }
  while (true) {
    const auto still = regions_.find(token);
    if (still == regions_.end()) { return true; }
    if (still->second.inside_count == 0) {
      regions_.erase(still);
      return true;
    }
    const std::uint64_t remaining_us = deadline.remaining_us();
    if (remaining_us == 0) { return false; }
    left_.wait_for(lock, std::chrono::microseconds(remaining_us));
  }
}

bool RegionTable::is_free(const Digest& token) const {
  const std::lock_guard lock(mutex_);
  return !regions_.contains(token);
}

std::optional<MutableBytes> RegionTable::enter(const SliceRequest& slice, Reason& why) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(slice.token);
  if (found == regions_.end() || found->second.leaving) {
    why = Reason::unknown_region;
    return std::nullopt;
  }
  Region& region = found->second;
  if (!lies_inside(slice, region.spec.memory.length)) {
    why = Reason::out_of_range;
    return std::nullopt;
  }
  if (slice.write && !region.spec.writable) {
    why = Reason::read_only;
    return std::nullopt;
  }
  ++region.inside_count;
  return writable({region.spec.memory.address + slice.offset, slice.length});
}

void RegionTable::leave(const SliceRequest& slice) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = regions_.find(slice.token); found != regions_.end()) { let_go(found); }
}

// The last one to leave a region that is leaving takes it along.
void RegionTable::let_go(Regions::iterator found) {
  if (--found->second.inside_count > 0 || !found->second.leaving) { return; }
  regions_.erase(found);
  left_.notify_all();
}

RegionTable::Regions::iterator RegionTable::region_of(const Piece& piece) {
  const auto after = by_address_.upper_bound(piece.address);
  if (after == by_address_.begin()) { return regions_.end(); }
  const auto found = regions_.find(std::prev(after)->second);
  const Piece& memory = found->second.spec.memory;
  const std::uint64_t offset = piece.address - memory.address;
  return offset <= memory.length && piece.length <= memory.length - offset ? found : regions_.end();
}

std::optional<std::vector<Digest>> RegionTable::enter_local(std::span<const Piece> pieces, std::size_t& outside) {
  std::vector<Digest> tokens;
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const auto found = region_of(pieces[index]);
    if (found == regions_.end()) {
      outside = index;
      for (const Digest& token : tokens) { let_go(regions_.find(token)); }
      return std::nullopt;
    }
    if (!tokens.empty() && tokens.back() == found->first) { continue; }
    ++found->second.inside_count;
    tokens.push_back(found->first);
  }
  return tokens;
}

void RegionTable::leave_local(std::span<const Digest> tokens) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Digest& token : tokens) {
    if (const auto found = regions_.find(token); found != regions_.end()) { let_go(found); }
  }
}

std::size_t RegionTable::region_count() const {
  const std::lock_guard lock(mutex_);
  return by_address_.size();
}

std::size_t RegionTable::leaving_count() const {
  const std::lock_guard lock(mutex_);
  return regions_.size() - by_address_.size();
}

}  // namespace moonpool
