#include "core/key_store.hpp"

#include <algorithm>

namespace moonpool {

std::size_t KeyStore::run_length(std::size_t key_bytes) {
  return std::max<std::size_t>(1, (key_bytes + granule_bytes - 1) / granule_bytes);
}

KeyStore::Handle KeyStore::add(std::string_view key) {
  const std::size_t length = run_length(key.size());
  Handle handle = 0;
  if (!free_[length].empty()) {
    handle = free_[length].back();
    free_[length].pop_back();
  } else {
    if (chunk_used_ + length > chunk_granule_count) {
      chunks_.push_back(std::make_unique<char[]>(chunk_granule_count * granule_bytes));
      chunk_used_ = 0;
    }
    handle = static_cast<Handle>(chunks_.size() - 1) * chunk_granule_count + chunk_used_;
    chunk_used_ += static_cast<std::uint32_t>(length);
  }
  char* const target = &chunks_[handle / chunk_granule_count][handle % chunk_granule_count * granule_bytes];
  std::copy(key.begin(), key.end(), target);
  return handle;
}

void KeyStore::remove(Handle handle, std::size_t key_bytes) { free_[run_length(key_bytes)].push_back(handle); }

}  // namespace moonpool
