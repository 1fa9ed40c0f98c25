// Where the pieces of a block lie in a caller's memory.
#pragma once

#include "io/memory.hpp"

namespace moonpool {

// Piece i of block n is at base[i] + n * stride[i] and has piece_bytes[i] bytes.
class Layout {
 public:
  // Throws std::invalid_argument: lists of different lengths, null, empty, wrapping or overlapping pieces.
  Layout(std::vector<std::uint64_t> base, std::vector<std::uint64_t> stride, std::vector<std::uint64_t> piece_bytes,
         std::uint64_t block_count);
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint64_t piece_count() const { return base_.size(); }
  [[nodiscard]] std::uint64_t block_count() const { return block_count_; }
  // Appends the pieces of a block. Throws std::invalid_argument past block_count.
  void pieces_of(std::uint64_t block_number, std::vector<Piece>& into) const;

 private:
  std::vector<std::uint64_t> base_;
  std::vector<std::uint64_t> stride_;
  std::vector<std::uint64_t> piece_bytes_;
  std::uint64_t block_count_;
  std::uint64_t block_bytes_ = 0;
};

}  // namespace moonpool
