#include "io/layout.hpp"

#include <stdexcept>

namespace moonpool {
namespace {

// The last block's piece must still end inside the address space.
void check_reach(std::uint64_t base, std::uint64_t stride, std::uint64_t bytes, std::uint64_t block_count) {
  check_piece({base, bytes});
  if (block_count > 1 && stride < bytes) {
    throw std::invalid_argument("a layout's blocks overlap: a stride is smaller than its piece");
  }
  std::uint64_t reach = 0;
  if (__builtin_mul_overflow(stride, block_count - 1, &reach) || __builtin_add_overflow(reach, base, &reach) ||
      __builtin_add_overflow(reach, bytes, &reach)) {
    throw std::invalid_argument("a layout reaches past the end of the address space");
  }
}

}  // namespace

Layout::Layout(std::vector<std::uint64_t> base, std::vector<std::uint64_t> stride,
               std::vector<std::uint64_t> piece_bytes, std::uint64_t block_count)
    : base_(std::move(base)),
      stride_(std::move(stride)),
      piece_bytes_(std::move(piece_bytes)),
      block_count_(block_count) {
  if (base_.empty() || base_.size() != stride_.size() || base_.size() != piece_bytes_.size()) {
    throw std::invalid_argument("a layout needs as many strides and lengths as bases, and at least one");
  }
  if (block_count_ == 0) { throw std::invalid_argument("a layout needs at least one block"); }
  for (std::size_t index = 0; index < base_.size(); ++index) {
    check_reach(base_[index], stride_[index], piece_bytes_[index], block_count_);
    if (__builtin_add_overflow(block_bytes_, piece_bytes_[index], &block_bytes_)) {
      throw std::invalid_argument("a layout's block is too large");
    }
  }
}

void Layout::pieces_of(std::uint64_t block_number, std::vector<Piece>& into) const {
  if (block_number >= block_count_) {
    throw std::invalid_argument("block " + std::to_string(block_number) + " is past the layout's " +
                                std::to_string(block_count_) + " blocks");
  }
  for (std::size_t index = 0; index < base_.size(); ++index) {
    into.push_back({base_[index] + block_number * stride_[index], piece_bytes_[index]});
  }
}

}  // namespace moonpool
