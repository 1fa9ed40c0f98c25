#include "io/piece_copy.hpp"

#include <algorithm>

#include "core/checksum.hpp"

namespace moonpool {
namespace {

// The next run that lies in one piece, at most byte_count long; moves on past it.
Piece take_run(std::span<const Piece>& pieces, std::uint64_t& offset, std::uint64_t byte_count) {
  const Piece first = pieces.front();
  const Piece run{first.address + offset, std::min(first.length - offset, byte_count)};
  offset += run.length;
  if (offset == first.length) {
    pieces = pieces.subspan(1);
    offset = 0;
  }
  return run;
}

}  // namespace

void Gather::next(MutableBytes target) {
  while (!target.empty()) {
    const Piece run = take_run(pieces_, offset_, target.size());
    checksum_ = copy_crc32c(target.first(run.length), readable(run), checksum_);
    target = target.subspan(run.length);
  }
}

void Scatter::next(ConstBytes source) {
  while (!source.empty()) {
    const Piece run = take_run(pieces_, offset_, source.size());
    checksum_ = copy_crc32c(writable(run), source.first(run.length), checksum_);
    source = source.subspan(run.length);
  }
}

}  // namespace moonpool
