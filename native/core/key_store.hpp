// The bytes of many short keys, without an allocation a key.
#pragma once

#include <array>
#include <memory>

#include "core/types.hpp"

namespace moonpool {

// Keys lie in runs of 16-byte granules; a freed run is used again for keys of the same number of granules.
class KeyStore {
 public:
  using Handle = std::uint32_t;

  // key is at most key_bytes_max long.
  [[nodiscard]] Handle add(std::string_view key);
  void remove(Handle handle, std::size_t key_bytes);
  [[nodiscard]] std::string_view view(Handle handle, std::size_t key_bytes) const {
    return {&chunks_[handle / chunk_granule_count][handle % chunk_granule_count * granule_bytes], key_bytes};
  }

 private:
  static constexpr std::size_t granule_bytes = 16;
  static constexpr std::uint32_t chunk_granule_count = 1U << 16;
  static constexpr std::size_t run_length_max = key_bytes_max / granule_bytes;

  static std::size_t run_length(std::size_t key_bytes);

  std::vector<std::unique_ptr<char[]>> chunks_;
  std::uint32_t chunk_used_ = chunk_granule_count;  // granules of the last chunk that were given out
  std::array<std::vector<Handle>, run_length_max + 1> free_;
};

}  // namespace moonpool
