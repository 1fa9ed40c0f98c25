// A bounded memory of why objects went.
#pragma once

#include "core/slot_index.hpp"

namespace moonpool {

class WhyLog {
 public:
  explicit WhyLog(std::uint32_t count_max) : count_max_(count_max) {}
  // What is known of the digest already is replaced in its place; otherwise the oldest makes room.
  void record(const Digest& digest, Reason reason);
  [[nodiscard]] Reason find(const Digest& digest) const;  // never_stored when nothing is known

 private:
  struct Record {
    Digest digest;
    Reason reason = Reason::none;
  };

  [[nodiscard]] Slot slot_of(const Digest& digest) const;
  static std::uint32_t hash_of(const Digest& digest) { return static_cast<std::uint32_t>(digest.low); }

  std::uint32_t count_max_;
  Slot oldest_ = 0;
  std::vector<Record> records_;  // a ring once it is full
  SlotIndex index_;
};

}  // namespace moonpool
