// The only place where integers become memory: mappings, memory files, and addresses given by callers.
#pragma once

#include <memory>

#include "core/types.hpp"
#include "io/descriptor.hpp"

namespace moonpool {

// A run of a caller's own memory. The caller vouches for it during the call that names it.
struct Piece {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

// Throws std::invalid_argument for a null address, an empty piece or one that wraps round the address space.
void check_piece(const Piece& piece);
[[nodiscard]] ConstBytes readable(const Piece& piece);
[[nodiscard]] MutableBytes writable(const Piece& piece);
[[nodiscard]] std::uint64_t address_of(ConstBytes bytes);

// A shared mapping of a memory file. Not inherited over fork: a child has nothing there.
class Mapping {
 public:
  enum class Access : std::uint8_t { read, write };
  Mapping(const Descriptor& file, std::uint64_t byte_count, Access access);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&&) = delete;
  Mapping& operator=(Mapping&&) = delete;

  [[nodiscard]] std::uint64_t byte_count() const { return byte_count_; }
  // Throws std::out_of_range when the range does not lie inside the mapping.
  [[nodiscard]] ConstBytes bytes(std::uint64_t offset, std::uint64_t length) const;
  [[nodiscard]] MutableBytes mutable_bytes(std::uint64_t offset, std::uint64_t length);
  // The whole of it; a rest that fills no word is left away.
  [[nodiscard]] std::span<const std::uint64_t> words() const;
  [[nodiscard]] std::span<std::uint64_t> mutable_words();
  // Both order the surrounding accesses: what was stored before is seen by whoever loads the value.
  void store_u64(std::uint64_t offset, std::uint64_t value);
  [[nodiscard]] std::uint64_t load_u64(std::uint64_t offset) const;
  // Makes the pages of the range present (and writable, where the mapping is). False: memory was refused.
  [[nodiscard]] bool populate(std::uint64_t offset, std::uint64_t length) const;

 private:
  void* start_ = nullptr;
  std::uint64_t byte_count_;
  Access access_;
  std::uint64_t fork_count_;
};

// An anonymous memory file of a fixed size, sealed against shrinking and growing. Throws std::system_error.
[[nodiscard]] Descriptor make_memory_file(const std::string& label, std::uint64_t byte_count);
// The same file, opened again for reading only.
[[nodiscard]] Descriptor reopen_for_reading(const Descriptor& file);

// How often this process is a fork of the one that loaded this code.
[[nodiscard]] std::uint64_t fork_count();

}  // namespace moonpool
