// Where every visible object lies, in memory that readers share, so that they find a value without asking anybody.
// Pure: it works on words that somebody else has mapped. One writer, any number of readers, no lock: each entry is
// guarded by its generation, which is zero while the entry changes and is never used twice (a sequence lock).
//
// A bucket is one line of eight marks and eight entries of one line each; a digest has two buckets to lie in
// (Azar, Broder, Karlin, Upfal: Balanced Allocations, 1999), so that they fill evenly. What finds no place is not
// lost: whoever does not find an object here asks its node.
#pragma once

#include "core/types.hpp"

namespace moonpool {

struct CatalogueEntry {
  Digest digest;
  Generation generation = 0;
  Extent extent;
  std::uint32_t checksum = 0;
  friend bool operator==(const CatalogueEntry&, const CatalogueEntry&) = default;
};

// Words for about that many objects.
[[nodiscard]] std::size_t catalogue_word_count(std::uint64_t object_count);

class Catalogue {
 public:
  // words: zeroed, as many as catalogue_word_count() says, aligned to 64 bytes; they outlive this.
  explicit Catalogue(std::span<std::uint64_t> words);
  // False: both of its buckets are full, and it stays unlisted.
  bool add(const CatalogueEntry& entry);
  void remove(const Digest& digest, Generation generation);
  [[nodiscard]] std::uint64_t entry_count() const { return entry_count_; }
  [[nodiscard]] std::uint64_t unlisted_count() const { return unlisted_count_; }  // since the beginning

 private:
  std::span<std::uint64_t> words_;
  std::uint64_t entry_count_ = 0;
  std::uint64_t unlisted_count_ = 0;
};

// Whether that many words can be a catalogue.
[[nodiscard]] bool is_catalogue_word_count(std::size_t word_count);

// What the catalogue says of that digest, whole, or nullopt. It may be gone by the time it is used: whoever copies
// compares the generation before the value with the entry's afterwards. words may be read-only memory and hold
// anything: the extent is checked where it becomes an address.
[[nodiscard]] std::optional<CatalogueEntry> find_in_catalogue(std::span<const std::uint64_t> words,
                                                              const Digest& digest);
// Brings the first line that find_in_catalogue() will look at into the processor's caches.
void prefetch_in_catalogue(std::span<const std::uint64_t> words, const Digest& digest);

}  // namespace moonpool
