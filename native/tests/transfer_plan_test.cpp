#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/transfer_plan.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "tests/rail_world.hpp"
#include "tests/seed.hpp"

namespace moonpool {
namespace {

using test::RailWorld;
using test::WorldRail;

constexpr std::uint64_t mebibyte = 1U << 20U;
constexpr WorldRail gigabit{};

std::uint64_t taken_us(const RailWorld& world, TransferId transfer) {
  return world.ended_us.at(transfer) - world.added_us.at(transfer);
}

void expect_applied(const RailWorld& world, TransferId transfer) {
  CHECK_MESSAGE((world.fault) == (std::string()), "integrity");
  REQUIRE(world.results.count(transfer) == 1);
  for (const OperationResult& result : world.results.at(transfer).operations) {
    CHECK(result.reason == Reason::none);
    CHECK_FALSE(result.may_be_applied_later);
  }
}

// A plan with connected rails, for tests that say themselves what happens.
TransferPlan connected_plan(std::size_t rail_count, const PlanLimits& limits = {}) {
  TransferPlan plan(limits);
  for (RailIndex rail = 0; rail < rail_count; ++rail) {
    (void)plan.add_rail({.nominal_bytes_per_second = 125'000'000});
    plan.connecting(rail);
    plan.connected(rail, 100 + rail, 0);
  }
  return plan;
}

TransferId add(TransferPlan& plan, std::vector<PlannedOperation> operations, std::uint64_t deadline_us = 1'000'000) {
  return plan.add(operations, {.deadline_us = deadline_us}, 0).value();
}

TEST_CASE("two rails of one speed move a long transfer in half the time of one") {
  RailWorld one({}, {gigabit}), two({}, {gigabit, gigabit});
  const TransferId alone = one.add(128 * mebibyte), spread = two.add(128 * mebibyte);
  one.run();
  two.run();
  expect_applied(one, alone);
  expect_applied(two, spread);
  CHECK(taken_us(two, spread) * 195 <= taken_us(one, alone) * 100);
}

TEST_CASE("a rail of a tenth of the speed carries a tenth and does not keep a transfer waiting") {
  RailWorld world({}, {gigabit, {.bytes_per_second = 12'500'000}});
  const TransferId transfer = world.add(110 * mebibyte);
  world.run();
  expect_applied(world, transfer);
  CHECK(world.moved_bytes[1] >= 7 * mebibyte);
  CHECK(world.moved_bytes[1] <= 12 * mebibyte);
  CHECK_MESSAGE(taken_us(world, transfer) <= 900'000, "110 MiB at 137.5 MB/s are 839 ms");
}

TEST_CASE("a slow rail gets nothing of what the fast one has moved before it") {
  RailWorld world({}, {{.bytes_per_second = 1'250'000'000}, {.bytes_per_second = 1'250'000}});
  const TransferId transfer = world.add(mebibyte);
  world.run();
  expect_applied(world, transfer);
  CHECK(world.moved_bytes[1] == 0);
}

TEST_CASE("a short batch goes over one rail") {
  TransferPlan plan = connected_plan(2);
  (void)add(plan, std::vector<PlannedOperation>(64, {.length = 4096}));
  std::set<RailIndex> used;
  std::size_t count = 0;
  while (const std::optional<PlannedSlice> slice = plan.next(10)) {
    used.insert(slice->rail);
    CHECK(slice->length == 4096U);
    ++count;
  }
  CHECK(count == 64U);
  CHECK(used.size() == 1U);
}

TEST_CASE("parts of an operation have one length, and cover it") {
  const SliceLimits limits;
  for (const std::uint64_t length : {1ULL, 65'536ULL, 1'300'000ULL, 1'400'000ULL, 10'000'001ULL}) {
    std::vector<std::uint64_t> parts;
    for (std::uint64_t left = length; left > 0; left -= parts.back()) {
      parts.push_back(slice_length(limits, left, 125'000'000));
      REQUIRE(parts.back() > 0);
      REQUIRE(parts.back() <= left);
    }
    const auto [shortest, longest] = std::minmax_element(parts.begin(), parts.end());
    CHECK_MESSAGE(*shortest * 2 > *longest, length, " bytes end in a short part of ", *shortest);
  }
}

TEST_CASE("a rail that is cut in the middle costs its share and half a second, and is used again when it heals") {
  WorldRail cut = gigabit;
  cut.cut_from_us = 1'400'000;
  cut.cut_until_us = 3'000'000;
  RailWorld world({}, {gigabit, cut});
  const TransferId transfer = world.add(400 * mebibyte);
  world.run();
  expect_applied(world, transfer);
  CHECK(world.plan.rails()[1].failure_count >= 1);
  CHECK_MESSAGE(world.moved_since_heal[1] > 20 * mebibyte, "the healed rail is used");
  CHECK(world.plan.drops_owed().empty());
}

TEST_CASE("one of two rails cut for good: done within the time of one rail and half a second") {
  WorldRail cut = gigabit;
  cut.cut_from_us = 1'200'000;
  RailWorld alone({}, {gigabit}), world({}, {gigabit, cut});
  const TransferId expected = alone.add(64 * mebibyte), transfer = world.add(64 * mebibyte);
  alone.run();
  world.run(10'000'000);
  expect_applied(world, transfer);
  CHECK(taken_us(world, transfer) <= taken_us(alone, expected) + 500'000);
}

TEST_CASE("a write that went out again is not done before the lost connection is known to be dropped") {
  WorldRail cut = gigabit;
  cut.cut_from_us = 1'100'000;
  RailWorld world({}, {gigabit, cut});
  world.peer_acknowledges_drops = false;
  const TransferId transfer = world.add(32 * mebibyte);
  world.run(5'000'000);
  CHECK(world.results.count(transfer) == 0U);
  CHECK(world.moved_bytes[0] + world.moved_bytes[1] == 32 * mebibyte);
  CHECK(world.plan.drops_owed().size() == 1U);
  world.peer_acknowledges_drops = true;
  world.run(6'000'000);
  expect_applied(world, transfer);
}

TEST_CASE("without that knowledge it fails at its deadline, and says that it may be applied later") {
  WorldRail cut = gigabit;
  cut.cut_from_us = 1'100'000;
  RailWorld world({}, {gigabit, cut});
  world.peer_acknowledges_drops = false;
  const TransferId transfer = world.add(32 * mebibyte, Priority::normal, 3'000);
  world.run(5'000'000);
  REQUIRE(world.results.count(transfer) == 1U);
  const OperationResult& result = world.results.at(transfer).operations.front();
  CHECK(result.reason == Reason::timed_out);
  CHECK(result.may_be_applied_later);
  CHECK_MESSAGE(world.plan.drops_owed().size() == 1U, "the drop is still owed: it ends the quarantine");
}

TEST_CASE("a read that went out again waits for nobody") {
  WorldRail cut = gigabit;
  cut.cut_from_us = 1'100'000;
  RailWorld world({}, {gigabit, cut});
  world.writes = false;
  world.peer_acknowledges_drops = false;
  const TransferId transfer = world.add(32 * mebibyte);
  world.run(5'000'000);
  expect_applied(world, transfer);
}

TEST_CASE("a rail that trickles is given up when another would long have moved its slice") {
  TransferPlan plan = connected_plan(2);
  (void)add(plan, {{.length = 64 * mebibyte, .write = false}}, 60'000'000);
  std::uint64_t now_us = 1;
  std::vector<PlannedSlice> of_good;
  bool given_up = false;
  for (; now_us < 5'000'000 && !given_up; now_us += 2'000) {
    while (const std::optional<PlannedSlice> slice = plan.next(now_us)) {
      if (slice->rail == 0) { of_good.push_back(*slice); }
    }
    plan.progressed(1, now_us);  // a byte now and then
    if (!of_good.empty()) {
      plan.finished(of_good.front().slice, now_us);
      of_good.erase(of_good.begin());
    }
    for (const RailIndex rail : plan.stalled(now_us)) {
      CHECK(rail == 1U);
      given_up = true;
    }
  }
  CHECK(given_up);
}

TEST_CASE("a driver that slept accuses no rail") {
  TransferPlan plan = connected_plan(1);
  (void)add(plan, {{.length = mebibyte}}, 90'000'000);
  while (plan.next(10)) {}
  CHECK(plan.stalled(75'010).empty());
  CHECK_MESSAGE(plan.stalled(60'000'000).empty(), "a minute unseen");
  std::uint64_t now_us = 60'000'000;
  while (plan.stalled(now_us).empty() && now_us < 63'000'000) { now_us = plan.wake_at_us(); }
  CHECK_MESSAGE(now_us < 61'800'000, "and then it does, if still nothing moves");
}

TEST_CASE("latency-critical work overtakes bulk work") {
  RailWorld world({}, {gigabit});
  const TransferId bulk = world.add(256 * mebibyte, Priority::bulk);
  std::vector<TransferId> quick;
  for (int round = 1; round <= 20; ++round) {
    world.run(1'000'000 + static_cast<std::uint64_t>(round) * 50'000);
    quick.push_back(world.add(64U << 10U, Priority::latency));
  }
  world.run();
  expect_applied(world, bulk);
  for (const TransferId transfer : quick) {
    expect_applied(world, transfer);
    CHECK_MESSAGE(taken_us(world, transfer) <= 20'000, "behind one window of bulk work");
  }
}

TEST_CASE("bulk work does not starve under latency-critical work without end") {
  RailWorld world({}, {gigabit});
  const TransferId bulk = world.add(4 * mebibyte, Priority::bulk);
  (void)world.add(32 * mebibyte, Priority::latency);
  for (int round = 1; round <= 100 && world.results.count(bulk) == 0; ++round) {
    world.run(1'000'000 + static_cast<std::uint64_t>(round) * 100'000);
    (void)world.add(32 * mebibyte, Priority::latency);  // more than the rail moves meanwhile
  }
  expect_applied(world, bulk);
  std::uint64_t bulk_bytes = 0, bytes = 0;
  for (const PlannedSlice& slice : world.sent) {
    bytes += slice.length;
    if (slice.transfer == bulk) { bulk_bytes += slice.length; }
    if (bulk_bytes == 4 * mebibyte) { break; }
  }
  CHECK_MESSAGE(bulk_bytes * 20 >= bytes, "a twentieth at least");
  CHECK_MESSAGE(bulk_bytes * 10 <= bytes, "a tenth at most");
}

TEST_CASE("what the peer refuses is refused once, and the rest goes on") {
  TransferPlan plan = connected_plan(1);
  const TransferId transfer = add(plan, {{.length = 4 * mebibyte, .write = true}, {.length = 4096}});
  const PlannedSlice first = plan.next(1).value();
  plan.refused(first.slice, Reason::read_only, 2);
  while (const std::optional<PlannedSlice> slice = plan.next(3)) { plan.finished(slice->slice, 3); }
  const std::vector<TransferResult> done = plan.take_done();
  REQUIRE(done.size() == 1U);
  CHECK(done.front().transfer == transfer);
  CHECK(done.front().operations[0].reason == Reason::read_only);
  CHECK(done.front().operations[1].reason == Reason::none);
  std::uint64_t unapplied = 0;
  for (const UnappliedPart& part : done.front().unapplied) { unapplied += part.length; }
  CHECK(unapplied == 4 * mebibyte);
  CHECK(plan.check_integrity().empty());
}

TEST_CASE("a slice is not tried without end") {
  PlanLimits limits;
  TransferPlan plan = connected_plan(1, limits);
  (void)add(plan, {{.length = 4096, .write = false}}, 60'000'000);
  std::uint64_t now_us = 1, connection = 500;
  std::uint32_t attempts = 0;
  while (plan.transfer_count() > 0 && now_us < 30'000'000) {
    if (const std::optional<PlannedSlice> slice = plan.next(now_us)) {
      CHECK(slice->attempt == ++attempts);
      plan.failed(0, now_us);
    }
    (void)plan.stalled(now_us);
    now_us = std::max(now_us + 1, std::min(plan.wake_at_us(), now_us + 1'000'000));
    for (const RailIndex rail : plan.rails_to_connect(now_us)) { plan.connected(rail, ++connection, now_us); }
  }
  const std::vector<TransferResult> done = plan.take_done();
  REQUIRE(done.size() == 1U);
  CHECK(done.front().operations.front().reason == Reason::unavailable);
  CHECK(attempts <= limits.attempts_max);
}

TEST_CASE("with no rail to be had, work fails after a few tries and not at its deadline") {
  WorldRail dead = gigabit;
  dead.cut_from_us = 0;
  RailWorld world({}, {dead, dead});
  const TransferId transfer = world.add(mebibyte);
  world.run();
  REQUIRE(world.results.count(transfer) == 1U);
  CHECK(world.results.at(transfer).operations.front().reason == Reason::unavailable);
  CHECK(taken_us(world, transfer) < 2'000'000);
}

TEST_CASE("pauses grow, are short again after a healthy time, and never long when no other rail is left") {
  RailBook book({});
  (void)book.add({});
  (void)book.add({});
  book.connected(0, 1, 0);
  std::vector<std::uint64_t> pauses;
  std::uint64_t now_us = 1'000;
  for (int round = 0; round < 7; ++round) {
    book.failed(1, now_us);
    pauses.push_back(book.connect_at_us(1) - now_us);
    now_us = book.connect_at_us(1);
    book.connected(1, 2, now_us);
    CHECK(book[1].state == RailState::trial);
  }
  CHECK(pauses == std::vector<std::uint64_t>{100'000, 200'000, 400'000, 800'000, 1'600'000, 2'000'000, 2'000'000});
  book.started(1, 4096, now_us);
  book.finished(1, 4096, now_us, now_us + 100);
  CHECK(book[1].state == RailState::up);
  book.failed(1, now_us + 200);
  CHECK_MESSAGE(book.connect_at_us(1) == now_us + 200 + 2'000'000, "one success alone forgives nothing");
  book.failed(0, now_us + 300);
  CHECK_MESSAGE(book.connect_at_us(1) == now_us + 200 + 250'000, "no other rail");
  now_us += 250'200;
  book.connected(1, 3, now_us);
  book.started(1, 4096, now_us);
  book.finished(1, 4096, now_us, now_us + 100);
  book.failed(1, now_us + 10'000'000);
  CHECK(book.connect_at_us(1) == now_us + 10'000'000 + 100'000);
}

TEST_CASE("a measured bandwidth is bytes over time, however the ends are bunched") {
  RailBook book({});
  (void)book.add({.nominal_bytes_per_second = 125'000'000});
  book.connected(0, 1, 0);
  std::uint64_t now_us = 1;
  for (int bunch = 0; bunch < 50; ++bunch) {  // 8 slices of 256 KiB are seen to end within 8 µs, every 20 ms
    for (int count = 0; count < 9; ++count) { book.started(0, 256U << 10U, now_us); }
    now_us += 20'000;
    for (std::uint64_t count = 0; count < 8; ++count) { book.finished(0, 256U << 10U, now_us, now_us + count); }
    book.finished(0, 256U << 10U, now_us, now_us + 8);
  }
  CHECK_MESSAGE(book[0].bytes_per_second > 80'000'000, "9 * 256 KiB in 20 ms are 118 MB/s");
  CHECK_MESSAGE(book[0].bytes_per_second < 170'000'000, "a mean of each slice's own speed would say 230 GB/s");
}

TEST_CASE("random rails, cuts and transfers: everything ends, and nothing is lost or done twice") {
  std::mt19937_64 random(test::seed());
  INFO("MOONPOOL_SEED=", test::seed());
  for (int round = 0; round < 40; ++round) {
    std::vector<WorldRail> rails(1 + random() % 3);
    for (WorldRail& rail : rails) {
      rail.bytes_per_second = 1'000'000 * (1 + random() % 1'000);
      rail.latency_us = random() % 2'000;
      if (random() % 2 == 0) {
        rail.cut_from_us = 1'000'000 + random() % 1'000'000;
        rail.cut_until_us = rail.cut_from_us + random() % 2'000'000;
      }
    }
    RailWorld world({}, rails);
    world.writes = random() % 2 == 0;
    std::vector<TransferId> transfers;
    for (int count = 0; count < 10; ++count) {
      transfers.push_back(world.add(random() % (32 * mebibyte), static_cast<Priority>(random() % 3), 30'000));
      world.run(world.now_us + random() % 200'000);
    }
    world.run();
    CHECK((world.fault) == (std::string()));
    for (const TransferId transfer : transfers) { CHECK(world.results.count(transfer) == 1U); }
    CHECK(world.plan.transfer_count() == 0U);
  }
}

}  // namespace
}  // namespace moonpool
