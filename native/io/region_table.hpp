// Memory of this process that was registered for transfer: who may touch what, and who is inside.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <unordered_map>

#include "io/clock.hpp"
#include "io/memory.hpp"
#include "io/region_authority.hpp"

namespace moonpool {

struct RegionSpec {
  Piece memory;
  bool writable = false;  // by peers
};

// Any thread.
class RegionTable final : public RegionAuthority {
 public:
  explicit RegionTable(std::size_t region_count_max) : region_count_max_(region_count_max) {}

  // The token under which peers name it. Throws std::invalid_argument for memory that is null, empty or overlaps
  // another region, std::length_error when there are too many.
  [[nodiscard]] Digest add(const RegionSpec& spec);
  // From now on nobody enters. True: nobody is inside any more; false: somebody was until the deadline, and the memory
  // must stay as it is until is_free().
  [[nodiscard]] bool remove(const Digest& token, Deadline deadline);
  // Nobody is inside, and nobody can enter.
  [[nodiscard]] bool is_free(const Digest& token) const;

  std::optional<MutableBytes> enter(const SliceRequest& slice, Reason& why) override;
  void leave(const SliceRequest& slice) noexcept override;

  // The regions in which these pieces of our own memory lie, kept until leave_local(). nullopt: `outside` is the first
  // piece that lies in none; nothing is kept then.
  [[nodiscard]] std::optional<std::vector<Digest>> enter_local(std::span<const Piece> pieces, std::size_t& outside);
  void leave_local(std::span<const Digest> tokens) noexcept;

  [[nodiscard]] std::size_t region_count() const;
  [[nodiscard]] std::size_t leaving_count() const;

 private:
  struct Region {
    RegionSpec spec;
    std::uint64_t inside_count = 0;
    bool leaving = false;
  };
  struct TokenHash {
    std::size_t operator()(const Digest& token) const { return static_cast<std::size_t>(token.low); }
  };
  using Regions = std::unordered_map<Digest, Region, TokenHash>;
  void let_go(Regions::iterator found);
  [[nodiscard]] Regions::iterator region_of(const Piece& piece);

  std::size_t region_count_max_;
  mutable std::mutex mutex_;
  std::condition_variable left_;
  Regions regions_;
  std::map<std::uint64_t, Digest> by_address_;  // of regions that are not leaving
};

}  // namespace moonpool
