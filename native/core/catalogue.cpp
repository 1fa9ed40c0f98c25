#include "core/catalogue.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

namespace moonpool {
namespace {

constexpr std::size_t line_words = 8;
constexpr std::size_t bucket_entries = 8;
constexpr std::size_t bucket_words = line_words * (1 + bucket_entries);

// Offsets in an entry.
constexpr std::size_t generation_at = 0;
constexpr std::size_t digest_low_at = 1;
constexpr std::size_t digest_high_at = 2;
constexpr std::size_t arena_and_checksum_at = 3;
constexpr std::size_t offset_at = 4;
constexpr std::size_t length_at = 5;
constexpr unsigned checksum_bits = 32;

std::uint64_t load(std::span<const std::uint64_t> words, std::size_t at) {
  return __atomic_load_n(&words[at], __ATOMIC_ACQUIRE);
}
void store(std::span<std::uint64_t> words, std::size_t at, std::uint64_t value) {
  __atomic_store_n(&words[at], value, __ATOMIC_RELEASE);
}

std::uint64_t mark_of(const Digest& digest) { return digest.low | 1U; }  // zero marks an empty place

struct Buckets {
  std::size_t first, second;  // words before them
};
Buckets buckets_of(std::size_t word_count, const Digest& digest) {
  const std::uint64_t mask = word_count / bucket_words - 1;
  return {(digest.low >> 1U & mask) * bucket_words, (digest.high & mask) * bucket_words};
}
std::size_t entry_of(std::size_t bucket, std::size_t place) { return bucket + line_words * (1 + place); }

bool is_entry(std::span<const std::uint64_t> words, std::size_t entry, const Digest& digest) {
  return load(words, entry + digest_low_at) == digest.low && load(words, entry + digest_high_at) == digest.high;
}

std::size_t used_places(std::span<const std::uint64_t> words, std::size_t bucket) {
  std::size_t count = 0;
  for (std::size_t place = 0; place < bucket_entries; ++place) { count += load(words, bucket + place) == 0 ? 0U : 1U; }
  return count;
}

std::optional<CatalogueEntry> read_entry(std::span<const std::uint64_t> words, std::size_t entry,
                                         const Digest& digest) {
  CatalogueEntry found;
  found.digest = digest;
  found.generation = load(words, entry + generation_at);
  if (found.generation == 0 || !is_entry(words, entry, digest)) { return std::nullopt; }
  const std::uint64_t arena_and_checksum = load(words, entry + arena_and_checksum_at);
  found.extent.arena_index = static_cast<std::uint32_t>(arena_and_checksum >> checksum_bits);
  found.checksum = static_cast<std::uint32_t>(arena_and_checksum);
  found.extent.offset = load(words, entry + offset_at);
  found.extent.length = load(words, entry + length_at);
  if (load(words, entry + generation_at) != found.generation) { return std::nullopt; }  // it changed meanwhile
  return found;
}

}  // namespace

std::size_t catalogue_word_count(std::uint64_t object_count) {
  const std::uint64_t places = std::max<std::uint64_t>(object_count + object_count / 2, bucket_entries);
  return std::bit_ceil((places + bucket_entries - 1) / bucket_entries) * bucket_words;
}

Catalogue::Catalogue(std::span<std::uint64_t> words) : words_(words) {}

bool Catalogue::add(const CatalogueEntry& added) {
  const Buckets buckets = buckets_of(words_.size(), added.digest);
  const bool first = used_places(words_, buckets.first) <= used_places(words_, buckets.second);
  const std::size_t bucket = first ? buckets.first : buckets.second;
  for (std::size_t place = 0; place < bucket_entries; ++place) {
    if (load(words_, bucket + place) != 0) { continue; }
    const std::size_t entry = entry_of(bucket, place);
    store(words_, entry + digest_low_at, added.digest.low);
    store(words_, entry + digest_high_at, added.digest.high);
    store(words_, entry + arena_and_checksum_at,
          static_cast<std::uint64_t>(added.extent.arena_index) << checksum_bits | added.checksum);
    store(words_, entry + offset_at, added.extent.offset);
    store(words_, entry + length_at, added.extent.length);
    store(words_, entry + generation_at, added.generation);
    store(words_, bucket + place, mark_of(added.digest));
    ++entry_count_;
    return true;
  }
  ++unlisted_count_;
  return false;
}

void Catalogue::remove(const Digest& digest, Generation generation) {
  const Buckets buckets = buckets_of(words_.size(), digest);
  for (const std::size_t bucket : {buckets.first, buckets.second}) {
    for (std::size_t place = 0; place < bucket_entries; ++place) {
      const std::size_t entry = entry_of(bucket, place);
      if (load(words_, bucket + place) == mark_of(digest) && is_entry(words_, entry, digest) &&
          load(words_, entry + generation_at) == generation) {
        store(words_, entry + generation_at, 0);
        store(words_, bucket + place, 0);
        --entry_count_;
        return;
      }
    }
  }
}

bool is_catalogue_word_count(std::size_t word_count) {
  return word_count % bucket_words == 0 && std::has_single_bit(word_count / bucket_words);
}

void prefetch_in_catalogue(std::span<const std::uint64_t> words, const Digest& digest) {
  const Buckets buckets = buckets_of(words.size(), digest);
  __builtin_prefetch(&words[buckets.first]);
  __builtin_prefetch(&words[buckets.second]);
}

std::optional<CatalogueEntry> find_in_catalogue(std::span<const std::uint64_t> words, const Digest& digest) {
  const Buckets buckets = buckets_of(words.size(), digest);
  for (const std::size_t bucket : {buckets.first, buckets.second}) {
    for (std::size_t place = 0; place < bucket_entries; ++place) {
      if (load(words, bucket + place) != mark_of(digest)) { continue; }
      if (std::optional<CatalogueEntry> found = read_entry(words, entry_of(bucket, place), digest)) { return found; }
    }
  }
  return std::nullopt;
}

}  // namespace moonpool
