#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "io/grants.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "tests/seed.hpp"

namespace moonpool::test {
namespace {

std::array<std::byte, 4096> memory;

Grants::What what(ConnectionId connection, Generation generation, bool write = false, std::uint64_t expires = 0) {
  return {connection, generation, memory, write, expires};
}

bool enters(Grants& grants, const SliceRequest& slice, Reason expected = Reason::none) {
  Reason why = Reason::none;
  const bool inside = grants.enter(slice, why).has_value();
  CHECK(why == expected);
  return inside;
}

TEST_CASE("a grant covers its memory, in its direction, and nothing else") {
  Grants grants([] {});
  const Digest token = grants.give(what(1, 7));
  CHECK(enters(grants, {token, 0, 4096, false}));
  CHECK(enters(grants, {token, 4096, 0, false}));
  CHECK_FALSE(enters(grants, {token, 0, 4097, false}, Reason::out_of_range));
  CHECK_FALSE(enters(grants, {token, 1, ~0ULL, false}, Reason::out_of_range));
  CHECK_FALSE(enters(grants, {token, ~0ULL, 2, false}, Reason::out_of_range));
  CHECK_FALSE(enters(grants, {token, 0, 1, true}, Reason::read_only));
  CHECK_FALSE(enters(grants, {{token.low, token.high ^ 1U}, 0, 1, false}, Reason::unknown_region));
  CHECK(grants.counts().denied_total == 5);
}

TEST_CASE("what is given twice ends with its second end") {
  Grants grants([] {});
  const Digest token = grants.give(what(1, 7));
  CHECK(grants.give(what(1, 7)) == token);
  CHECK(grants.give(what(2, 7)) != token);
  CHECK(grants.end(1, 7) == Grants::Ending::shared);
  CHECK(enters(grants, {token, 0, 1, false}));
  grants.leave({token, 0, 1, false});
  CHECK(grants.end(1, 7) == Grants::Ending::free);
  CHECK(grants.end(1, 7) == Grants::Ending::unknown);
  CHECK_FALSE(enters(grants, {token, 0, 1, false}, Reason::unknown_region));
}

TEST_CASE("a grant that somebody is inside of is vacated by the last one to leave") {
  int told = 0;
  Grants grants([&] { ++told; });
  const Digest token = grants.give(what(3, 9, true));
  const SliceRequest slice{token, 8, 8, true};
  REQUIRE(enters(grants, slice));
  REQUIRE(enters(grants, slice));
  CHECK(grants.end(3, 9) == Grants::Ending::busy);
  CHECK(grants.busy(3));
  CHECK_FALSE(enters(grants, slice, Reason::unknown_region));
  grants.leave(slice);
  CHECK(told == 0);
  grants.leave(slice);
  CHECK(told == 1);
  const std::vector<Grants::Vacated> vacated = grants.take_vacated();
  REQUIRE(vacated.size() == 1);
  CHECK(vacated[0].connection == 3);
  CHECK(vacated[0].generation == 9);
  CHECK(vacated[0].write);
  CHECK_FALSE(grants.busy(3));
  CHECK(grants.take_vacated().empty());
}

TEST_CASE("the end of a connection ends all that it had, and nobody else's") {
  Grants grants([] {});
  const Digest first = grants.give(what(1, 1));
  const Digest second = grants.give(what(1, 2));
  const Digest other = grants.give(what(2, 1));
  REQUIRE(enters(grants, {second, 0, 1, false}));
  CHECK(grants.end_all(1));
  CHECK_FALSE(enters(grants, {first, 0, 1, false}, Reason::unknown_region));
  CHECK(enters(grants, {other, 0, 1, false}));
  grants.leave({second, 0, 1, false});
  CHECK_FALSE(grants.end_all(1));
  CHECK(grants.counts().given == 1);
}

TEST_CASE("an expired grant lets nobody in, and a longer one of the same thing counts") {
  Grants grants([] {});
  const Digest token = grants.give(what(1, 1, false, 100));
  (void)grants.give(what(1, 1, false, 200));
  CHECK(grants.take_expired(150).empty());
  const std::vector<Grants::Vacated> expired = grants.take_expired(200);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].use_count == 2);
  CHECK_FALSE(enters(grants, {token, 0, 1, false}, Reason::unknown_region));
}

TEST_CASE("no token comes twice, whatever was given before") {
  Grants grants([] {});
  std::set<std::pair<std::uint64_t, std::uint64_t>> tokens;
  for (Generation generation = 0; generation < 10'000; ++generation) {
    const Digest token = grants.give(what(1, generation));
    CHECK(tokens.insert({token.low, token.high}).second);
    (void)grants.end(1, generation);
  }
}

TEST_CASE("nobody is inside what was let go, with rails in threads and the loop beside them") {
  INFO("MOONPOOL_SEED=", seed());
  constexpr std::size_t rail_count = 3;
  constexpr int round_count = 3'000;
  std::atomic<std::uint64_t> vacated{0};
  Grants grants([&] { ++vacated; });
  std::atomic<std::uint64_t> low{0};
  std::atomic<std::uint64_t> high{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> inside{0};
  std::vector<std::thread> rails;
  for (std::size_t number = 0; number < rail_count; ++number) {
    rails.emplace_back([&] {
      while (!stopping.load()) {
        const SliceRequest slice{{low.load(), high.load()}, 0, 1, false};
        Reason why = Reason::none;
        if (!grants.enter(slice, why)) { continue; }
        ++inside;
        std::this_thread::yield();
        --inside;
        grants.leave(slice);
      }
    });
  }
  std::mt19937_64 random(seed());
  for (int round = 0; round < round_count; ++round) {
    const Digest token = grants.give(what(1, static_cast<Generation>(round)));
    high.store(token.high);
    low.store(token.low);
    for (std::uint64_t spin = random() % 50; spin > 0; --spin) { std::this_thread::yield(); }
    const std::uint64_t told = vacated.load();
    if (grants.end(1, static_cast<Generation>(round)) == Grants::Ending::busy) {
      while (vacated.load() == told) { std::this_thread::yield(); }
    }
    CHECK(inside.load() == 0);  // this grant alone can be entered, and it is over
  }
  stopping.store(true);
  for (std::thread& rail : rails) { rail.join(); }
  CHECK(grants.counts().given == 0);
  CHECK(grants.counts().busy == 0);
}

}  // namespace
}  // namespace moonpool::test
