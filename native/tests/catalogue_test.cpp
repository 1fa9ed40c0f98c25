#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/catalogue.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "tests/seed.hpp"

namespace moonpool {
namespace {

// Everything in an entry follows from its generation, so that a mixture of two shows.
CatalogueEntry entry_of(std::uint64_t number, Generation generation) {
  CatalogueEntry entry;
  entry.digest = {number * 0x9e3779b97f4a7c15ULL, (number + 1) * 0xc2b2ae3d27d4eb4fULL};
  entry.generation = generation;
  entry.extent = {static_cast<std::uint32_t>(generation), generation * 3, generation * 5};
  entry.checksum = static_cast<std::uint32_t>(generation * 7);
  return entry;
}

TEST_CASE("a catalogue says what was added and not removed") {
  std::vector<std::uint64_t> words(catalogue_word_count(400));
  CHECK(is_catalogue_word_count(words.size()));
  CHECK_FALSE(is_catalogue_word_count(words.size() + 1));
  Catalogue catalogue(words);
  std::map<std::uint64_t, CatalogueEntry> truth;
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (Generation generation = 1; generation < 20'000; ++generation) {
    const std::uint64_t number = random() % 800;
    if (const auto found = truth.find(number); found != truth.end()) {
      catalogue.remove(found->second.digest, found->second.generation);
      truth.erase(found);
    } else if (truth.size() < 400 && catalogue.add(entry_of(number, generation))) {
      truth.emplace(number, entry_of(number, generation));
    }
    const std::uint64_t asked = random() % 800;
    const auto expected = truth.find(asked);
    const std::optional<CatalogueEntry> found = find_in_catalogue(words, entry_of(asked, 0).digest);
    REQUIRE(found.has_value() == (expected != truth.end()));
    if (found) { REQUIRE(*found == expected->second); }
  }
  CHECK(catalogue.entry_count() == truth.size());
  CHECK(catalogue.unlisted_count() == 0);  // two buckets each: at two thirds nothing overflows
}

TEST_CASE("what finds no place is counted, and an older residency's removal leaves a newer one") {
  std::vector<std::uint64_t> words(catalogue_word_count(1));
  Catalogue catalogue(words);
  for (std::uint64_t number = 1; number <= 16; ++number) { (void)catalogue.add(entry_of(number, number)); }
  CHECK(catalogue.entry_count() == 8);
  CHECK(catalogue.unlisted_count() == 8);
  catalogue.remove(entry_of(1, 1).digest, 99);
  CHECK(find_in_catalogue(words, entry_of(1, 1).digest).has_value());
  catalogue.remove(entry_of(1, 1).digest, 1);
  CHECK_FALSE(find_in_catalogue(words, entry_of(1, 1).digest).has_value());
}

TEST_CASE("readers see whole entries or none while one writer changes them") {
  std::vector<std::uint64_t> words(catalogue_word_count(64));
  Catalogue catalogue(words);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> mixed{0};
  const auto read = [&] {
    std::uint64_t number = 0;
    while (!done.load()) {
      number = (number + 1) % 64;
      const std::optional<CatalogueEntry> found = find_in_catalogue(words, entry_of(number, 0).digest);
      if (found && !(*found == entry_of(number, found->generation))) { mixed.fetch_add(1); }
    }
  };
  std::thread first(read);
  std::thread second(read);
  std::vector<Generation> present(64, 0);
  for (Generation generation = 1; generation < 200'000; ++generation) {
    const std::uint64_t number = generation * 31 % 64;
    if (present[number] != 0) { catalogue.remove(entry_of(number, 0).digest, present[number]); }
    present[number] = catalogue.add(entry_of(number, generation)) ? generation : 0;
  }
  done.store(true);
  first.join();
  second.join();
  CHECK(mixed.load() == 0);
}

TEST_CASE("words that hold anything lead nowhere but to an entry or none") {
  const std::uint64_t seed = test::seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> words(catalogue_word_count(64));
  for (std::uint64_t& word : words) { word = random(); }
  for (std::uint64_t number = 0; number < 1'000; ++number) {
    (void)find_in_catalogue(words, {words[random() % words.size()], random()});
  }
}

}  // namespace
}  // namespace moonpool
