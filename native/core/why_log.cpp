#include "core/why_log.hpp"

namespace moonpool {

Slot WhyLog::slot_of(const Digest& digest) const {
  return index_.find(hash_of(digest), [&](Slot slot) { return records_[slot].digest == digest; });
}

void WhyLog::record(const Digest& digest, Reason reason) {
  if (count_max_ == 0) return;
  Slot slot = slot_of(digest);
  if (slot != no_slot) {
    records_[slot].reason = reason;
    return;
  }
  if (records_.size() < count_max_) {
    slot = static_cast<Slot>(records_.size());
    records_.emplace_back();
  } else {
    slot = oldest_;
    oldest_ = (oldest_ + 1) % count_max_;
    index_.erase(hash_of(records_[slot].digest), slot);
  }
  records_[slot] = {digest, reason};
  index_.insert(hash_of(digest), slot);
}

Reason WhyLog::find(const Digest& digest) const {
  const Slot slot = slot_of(digest);
  return slot == no_slot ? Reason::never_stored : records_[slot].reason;
}

}  // namespace moonpool
