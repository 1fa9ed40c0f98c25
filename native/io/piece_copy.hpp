// Copies between a value's pieces and one run of bytes, checksummed in the same pass.
#pragma once

#include "io/memory.hpp"

namespace moonpool {

// Gathers pieces in order, any number of bytes at a time.
class Gather {
 public:
  explicit Gather(std::span<const Piece> pieces) : pieces_(pieces) {}
  // Fills target; the pieces must still have that much.
  void next(MutableBytes target);
  [[nodiscard]] std::uint32_t checksum() const { return checksum_; }

 private:
  std::span<const Piece> pieces_;
  std::uint64_t offset_ = 0;  // in the first piece
  std::uint32_t checksum_ = 0;
};

// Scatters bytes into pieces in order.
class Scatter {
 public:
  explicit Scatter(std::span<const Piece> pieces) : pieces_(pieces) {}
  void next(ConstBytes source);
  [[nodiscard]] std::uint32_t checksum() const { return checksum_; }

 private:
  std::span<const Piece> pieces_;
  std::uint64_t offset_ = 0;
  std::uint32_t checksum_ = 0;
};

}  // namespace moonpool
