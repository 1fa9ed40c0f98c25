// The memory that a node offers: arenas, each one memory file, with a header before every object's value.
#pragma once

#include <atomic>
#include <memory>

#include "io/memory.hpp"

namespace moonpool {

// What lies in the object_header_bytes before a value. Readers look at the generation after a copy: it names
// this residency and nothing else ever, and is zeroed before the space may be written again.
namespace object_header {
inline constexpr std::uint64_t magic = 0x3130544a424f504dULL;
inline constexpr std::uint64_t magic_at = 0;
inline constexpr std::uint64_t generation_at = 8;
inline constexpr std::uint64_t digest_low_at = 16;
inline constexpr std::uint64_t digest_high_at = 24;
inline constexpr std::uint64_t length_at = 32;
inline constexpr std::uint64_t checksum_at = 40;
}  // namespace object_header

class Segment {
 public:
  // Cuts segment_bytes into arenas of arena_bytes (the last may be smaller). Throws std::invalid_argument,
  // std::system_error.
  Segment(const std::string& label, std::uint64_t segment_bytes, std::uint64_t arena_bytes);
  [[nodiscard]] std::vector<std::uint64_t> arena_bytes() const;
  // Takes the memory from the system, so that no reader or writer meets a page that is not there.
  // Returns early, false, when stopping becomes true or memory is refused.
  [[nodiscard]] bool populate(const std::atomic<bool>& stopping, std::atomic<std::uint64_t>& populated_bytes) const;

  void write_header(const Extent& extent, Generation generation, const Digest& digest);
  void write_checksum(const Extent& extent, std::uint32_t checksum);
  // The object at this extent is no more; who still copies from it will see that.
  void invalidate(const Extent& extent);
  [[nodiscard]] ConstBytes value(const Extent& extent) const;
  [[nodiscard]] MutableBytes mutable_value(const Extent& extent);
  // A descriptor of the arena's memory file to give away. arena_index must exist.
  [[nodiscard]] Descriptor lend(std::uint32_t arena_index, bool can_write) const;

 private:
  struct Arena {
    Descriptor file;
    Descriptor file_for_reading;
    std::unique_ptr<Mapping> mapping;
  };
  std::vector<Arena> arenas_;
};

}  // namespace moonpool
