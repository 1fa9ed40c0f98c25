#include "io/grants.hpp"

#include <algorithm>
#include <utility>

#include "io/handshake.hpp"

namespace moonpool {

Grants::Grants(std::function<void()> vacated) : vacated_(std::move(vacated)), key_(random_nonce()) {}

// A keyed hash of a counter: who does not know the key cannot guess any of them from others (SipHash is a PRF).
Digest Grants::fresh_token() {
  ++token_count_;
  return siphash128(key_, std::as_bytes(std::span(&token_count_, 1)));
}

Digest Grants::give(const What& what) {
  const std::lock_guard lock(mutex_);
  const Owner owner{what.connection, what.generation};
  if (const auto known = by_owner_.find(owner); known != by_owner_.end()) {
    Entry& entry = entries_.at(known->second);
    ++entry.use_count;
    entry.what.expires_at_ms = entry.what.expires_at_ms == 0 || what.expires_at_ms == 0
                                   ? 0
                                   : std::max(entry.what.expires_at_ms, what.expires_at_ms);
    return known->second;
  }
  const Digest token = fresh_token();
  Entry entry;
  entry.what = what;
  entries_.emplace(token, entry);
  by_owner_.emplace(owner, token);
  return token;
}

Grants::Vacated Grants::vacated_of(const Entry& entry) {
  return {entry.what.connection, entry.what.generation, entry.what.write, entry.use_count};
}

bool Grants::finish(Entries::iterator found) {
  Entry& entry = found->second;
  by_owner_.erase({entry.what.connection, entry.what.generation});
  if (entry.inside_count == 0) {
    entries_.erase(found);
    return true;
  }
  entry.ended = true;
  ++busy_[entry.what.connection];
  gone_.reserve(entries_.size());  // whoever leaves must not need memory
  return false;
}

Grants::Ending Grants::end(ConnectionId connection, Generation generation) {
  const std::lock_guard lock(mutex_);
  const auto known = by_owner_.find({connection, generation});
  if (known == by_owner_.end()) { return Ending::unknown; }
  const auto found = entries_.find(known->second);
  if (found->second.use_count > 1) {
    --found->second.use_count;
    return Ending::shared;
  }
  return finish(found) ? Ending::free : Ending::busy;
}

bool Grants::end_all(ConnectionId connection) {
  const std::lock_guard lock(mutex_);
  auto next = by_owner_.lower_bound({connection, 0});
  while (next != by_owner_.end() && next->first.first == connection) {
    const Digest token = next->second;
    ++next;  // finish() erases the one before
    (void)finish(entries_.find(token));
  }
  return busy_.contains(connection);
}

bool Grants::busy(ConnectionId connection) const {
  const std::lock_guard lock(mutex_);
  return busy_.contains(connection);
}

std::vector<Grants::Vacated> Grants::take_expired(std::uint64_t now_ms) {
  std::vector<Vacated> expired;
  const std::lock_guard lock(mutex_);
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto current = next++;
    const Entry& entry = current->second;
    if (entry.ended || entry.what.expires_at_ms == 0 || entry.what.expires_at_ms > now_ms) { continue; }
    const Vacated vacated = vacated_of(entry);
    if (finish(current)) { expired.push_back(vacated); }
  }
  return expired;
}

std::vector<Grants::Vacated> Grants::take_vacated() {
  const std::lock_guard lock(mutex_);
  std::vector<Vacated> taken = gone_;
  gone_.clear();  // and keeps its memory
  return taken;
}

Grants::Counts Grants::counts() const {
  const std::lock_guard lock(mutex_);
  return {by_owner_.size(), entries_.size() - by_owner_.size(), inside_count_, denied_total_};
}

std::optional<MutableBytes> Grants::enter(const SliceRequest& slice, Reason& why) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(slice.token);
  if (found == entries_.end() || found->second.ended) {
    why = Reason::unknown_region;
  } else if (!lies_inside(slice, found->second.what.memory.size())) {
    why = Reason::out_of_range;
  } else if (slice.write != found->second.what.write) {
    why = Reason::read_only;  // what is reserved has nothing to read yet
  } else {
    ++found->second.inside_count;
    ++inside_count_;
    return found->second.what.memory.subspan(slice.offset, slice.length);
  }
  ++denied_total_;
  return std::nullopt;
}

void Grants::leave(const SliceRequest& slice) noexcept {
  bool vacated = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(slice.token);
    if (found == entries_.end()) { return; }
    Entry& entry = found->second;
    --inside_count_;
    vacated = --entry.inside_count == 0 && entry.ended;
    if (vacated) {
      if (--busy_[entry.what.connection] == 0) { busy_.erase(entry.what.connection); }
      gone_.push_back(vacated_of(entry));
      entries_.erase(found);
    }
  }
  if (vacated) { vacated_(); }
}

}  // namespace moonpool
