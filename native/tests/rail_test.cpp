// Rails in one process, in threads: what the sanitizers watch.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "core/checksum.hpp"
#include "core/rail_frame.hpp"
#include "io/rail_client.hpp"
#include "io/region_table.hpp"
#include "io/transfer_engine.hpp"
#include "io/transfer_inbox.hpp"
#include "tests/seed.hpp"

namespace moonpool::test {
namespace {

constexpr std::uint64_t patience_ms = 20'000;

std::vector<std::byte> noise(std::mt19937_64& random, std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Piece piece_of(std::span<std::byte> bytes) { return {address_of(bytes), bytes.size()}; }

RailOrder soon(std::uint64_t milliseconds = patience_ms) {
  RailOrder order;
  order.deadline = Deadline::after_ms(milliseconds);
  return order;
}

struct Bed {
  Bed() : server(options(), regions, &inbox) { server.start(); }
  static TransferServerOptions options() {
    TransferServerOptions options;
    options.identity.name = "bed";
    options.identity.addresses = {{"127.0.0.1", 0}};
    return options;
  }
  RailOptions rails(std::size_t count = 1) {
    RailOptions options;
    for (std::size_t index = 0; index < count; ++index) options.routes.push_back({server.bound().at(0), ""});
    options.name = "test";
    return options;
  }

  RegionTable regions{64};
  CompletionQueue queue;
  TransferInbox inbox{64, queue};
  TransferServer server;
};

}  // namespace

TEST_CASE("a rail request and a reply survive the wire, and no changed byte does") {
  INFO("MOONPOOL_SEED=", seed());
  std::mt19937_64 random(seed());
  for (int round = 0; round < 200; ++round) {
    RailRequest request;
    request.verb = static_cast<RailVerb>(1 + random() % 2);
    request.checksum = random() % 2 == 0;
    request.number = static_cast<std::uint32_t>(random());
    request.token = {random(), random()};
    request.offset = random();
    request.length = 1 + random() % rail_slice_bytes_max;
    std::array<std::byte, rail_request_bytes> bytes{};
    encode_rail_request(request, bytes);
    const std::optional<RailRequest> again = decode_rail_request(bytes);
    REQUIRE(again.has_value());
    CHECK(again->token == request.token);
    CHECK(again->offset == request.offset);
    CHECK(again->length == request.length);
    bytes[random() % bytes.size()] ^= std::byte{1};
    CHECK_FALSE(decode_rail_request(bytes).has_value());
  }
}

TEST_CASE("what is written is read back, whatever the sizes and however many rails") {
  INFO("MOONPOOL_SEED=", seed());
  std::mt19937_64 random(seed());
  for (const std::size_t rail_count : {std::size_t{1}, std::size_t{3}}) {
    Bed bed;
    std::vector<std::byte> memory(16U << 20U);
    const Digest token = bed.regions.add({piece_of(memory), true});
    RailClient client(bed.rails(rail_count));
    REQUIRE(client.connect(Deadline::after_ms(patience_ms)).reason == Reason::none);
    for (int round = 0; round < 20; ++round) {
      std::vector<RailOperation> writes;
      std::vector<std::vector<std::byte>> sources;
      std::uint64_t offset = 0;
      while (offset < memory.size() / 2 && writes.size() < 100) {
        const std::size_t bytes = 1 + random() % (round % 2 == 0 ? 8'192 : 3'000'000);
        sources.push_back(noise(random, std::min<std::size_t>(bytes, memory.size() - offset)));
        writes.push_back({true, round % 3 == 0, token, offset, piece_of(sources.back())});
        offset += sources.back().size();
      }
      const std::vector<RailOutcome> written = client.run(writes, soon());
      std::vector<RailOperation> reads;
      std::vector<std::vector<std::byte>> targets;
      for (const RailOperation& write : writes) {
        targets.emplace_back(write.local.length);
        reads.push_back({false, true, token, write.offset, piece_of(targets.back())});
      }
      const std::vector<RailOutcome> read = client.run(reads, soon());
      for (std::size_t index = 0; index < writes.size(); ++index) {
        CHECK(written.at(index).reason == Reason::none);
        CHECK(read.at(index).reason == Reason::none);
        CHECK(targets[index] == sources[index]);
        CHECK(read.at(index).checksum == crc32c(sources[index]));
        if (writes[index].checksum) CHECK(written.at(index).checksum == crc32c(sources[index]));
      }
    }
    CHECK(bed.regions.remove(token, Deadline::after_ms(patience_ms)));
  }
}

TEST_CASE("a slice that may not be touched is refused by name, and the others of its batch are applied") {
  Bed bed;
  std::vector<std::byte> open_memory(1U << 20U);
  std::vector<std::byte> shut_memory(1U << 20U);
  std::vector<std::byte> source(100'000, std::byte{7});
  const Digest open_token = bed.regions.add({piece_of(open_memory), true});
  const Digest shut_token = bed.regions.add({piece_of(shut_memory), false});
  RailClient client(bed.rails());
  const std::vector<RailOperation> operations{
      {true, false, open_token, 0, piece_of(source)},
      {true, false, shut_token, 0, piece_of(source)},
      {true, false, {1, 2}, 0, piece_of(source)},
      {true, false, open_token, open_memory.size() - 10, piece_of(source)},
      {false, false, open_token, ~std::uint64_t{0} - 10, piece_of(source)},
      {true, false, open_token, 200'000, piece_of(source)},
  };
  const std::vector<RailOutcome> outcomes = client.run(operations, soon());
  const std::vector<Reason> wanted{Reason::none,         Reason::read_only,    Reason::unknown_region,
                                   Reason::out_of_range, Reason::out_of_range, Reason::none};
  for (std::size_t index = 0; index < wanted.size(); ++index) CHECK(outcomes.at(index).reason == wanted[index]);
  CHECK(shut_memory == std::vector<std::byte>(1U << 20U));
  CHECK(std::equal(source.begin(), source.end(), open_memory.begin() + 200'000));
}

TEST_CASE("many threads share one client, some wait and some are told") {
  Bed bed;
  std::vector<std::byte> memory(8U << 20U);
  const Digest token = bed.regions.add({piece_of(memory), true});
  RailClient client(bed.rails(2));
  std::atomic<std::uint64_t> told{0};
  std::vector<std::thread> threads;
  for (std::uint64_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      std::mt19937_64 random(lane + 1);
      const std::uint64_t start = lane * (2U << 20U);
      for (int round = 0; round < 40; ++round) {
        std::vector<std::byte> source = noise(random, 1 + random() % 200'000);
        std::vector<std::byte> target(source.size());
        if (lane % 2 == 0) {
          CHECK(client.run(std::vector<RailOperation>{{true, false, token, start, piece_of(source)}}, soon())
                    .at(0)
                    .reason == Reason::none);
        } else {
          const auto transfer =
              client.submit({{true, false, token, start, piece_of(source)}}, soon(), [&] { told.fetch_add(1); });
          CHECK(transfer->wait(Deadline::after_ms(patience_ms)));
          CHECK(transfer->outcomes().at(0).reason == Reason::none);
        }
        CHECK(client.run(std::vector<RailOperation>{{false, false, token, start, piece_of(target)}}, soon())
                  .at(0)
                  .reason == Reason::none);
        CHECK(source == target);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(told.load() == 80);
}

TEST_CASE("a message comes after the bytes, once") {
  Bed bed;
  std::vector<std::byte> memory(1U << 20U);
  std::vector<std::byte> source(memory.size(), std::byte{9});
  const Digest token = bed.regions.add({piece_of(memory), true});
  RailClient client(bed.rails());
  std::thread receiver([&] {
    const std::optional<TransferMessage> message = bed.inbox.take(Deadline::after_ms(patience_ms));
    CHECK(message.value_or(TransferMessage{}).from == "test");
    CHECK(message.value_or(TransferMessage{}).text == "applied");
    CHECK(memory == source);
  });
  RailOrder order = soon();
  order.message = "applied";
  const auto outcomes = client.run(std::vector<RailOperation>{{true, false, token, 0, piece_of(source)}}, order);
  CHECK(outcomes.at(0).reason == Reason::none);
  CHECK(outcomes.at(1).reason == Reason::none);
  receiver.join();
}

TEST_CASE("no message says that all is applied when something is not") {
  Bed bed;
  std::vector<std::byte> memory(1U << 20U);
  std::vector<std::byte> source(100'000);
  const Digest token = bed.regions.add({piece_of(memory), true});
  RailClient client(bed.rails());
  RailOrder order = soon();
  order.message = "applied";
  const std::vector<RailOperation> operations{{true, false, token, 0, piece_of(source)},
                                              {true, false, {1, 2}, 0, piece_of(source)}};
  CHECK(client.run(operations, order).at(2).reason == Reason::unknown_region);
  CHECK_FALSE(bed.inbox.take(Deadline::after_ms(0)).has_value());
}

namespace {

// Reaches one region, by a copy.
class Shortcut final : public PeerTransport {
 public:
  Shortcut(RegionTable& regions, const Digest& token) : regions_(regions), token_(token) {}
  [[nodiscard]] const char* name() const override { return "shortcut"; }
  [[nodiscard]] std::optional<RailOutcome> move(const RailOperation& operation, Deadline /*deadline*/) override {
    if (operation.token != token_) { return std::nullopt; }
    RailOutcome outcome;
    const SliceRequest slice{operation.token, operation.offset, operation.local.length, operation.write};
    const std::optional<MutableBytes> memory = regions_.enter(slice, outcome.reason);
    if (!memory) { return outcome; }
    const MutableBytes local = writable(operation.local);
    std::ranges::copy(operation.write ? local : *memory, (operation.write ? *memory : local).begin());
    regions_.leave(slice);
    moved_count.fetch_add(1);
    return outcome;
  }
  static inline std::atomic<int> moved_count{0};

 private:
  RegionTable& regions_;
  Digest token_;
};

}  // namespace

TEST_CASE("a transport takes what it reaches, and the rails the rest") {
  Bed bed;
  std::vector<std::byte> near_memory(1U << 20U);
  std::vector<std::byte> far_memory(1U << 20U);
  std::vector<std::byte> source(2U << 20U, std::byte{5});
  const RemoteRegion near_region{bed.regions.add({piece_of(near_memory), true}), near_memory.size(), true};
  const RemoteRegion far_region{bed.regions.add({piece_of(far_memory), false}), far_memory.size(), true};
  const auto core = std::make_shared<TransferCore>(TransferLimits{});
  (void)core->regions.add({piece_of(source), false});
  TransferPeer peer(core, bed.rails(), 16);
  peer.add_transport(std::make_unique<Shortcut>(bed.regions, near_region.token));
  const auto at = [&](std::size_t offset) { return Piece{address_of(source) + offset, 1000}; };
  const std::vector<TransferOperation> operations{
      {true, near_region, 0, at(0)}, {true, far_region, 0, at(1000)}, {true, near_region, 1000, at(2000)}};
  RailOrder order = soon();
  order.message = "never";
  const auto check = [&](const TransferReport& report) {
    CHECK(report.outcomes.at(0).reason == Reason::none);
    CHECK(report.outcomes.at(1).reason == Reason::read_only);
    CHECK(report.outcomes.at(2).reason == Reason::none);
    CHECK(report.message_reason == Reason::read_only);
    CHECK(near_memory.at(1999) == std::byte{5});
    CHECK(far_memory.at(0) == std::byte{0});
  };
  check(peer.run(operations, false, order));
  const std::shared_ptr<Transfer> transfer = peer.submit(operations, false, order);
  transfer->watch(77);
  CHECK(transfer->wait(Deadline::after_ms(patience_ms)));
  check(transfer->report());
  CHECK(core->queue.take() == std::vector<std::uint64_t>{77});
  CHECK(Shortcut::moved_count.load() == 4);
  CHECK_THROWS_AS((void)peer.run(std::vector<TransferOperation>{{true, near_region, 0, {1, 16}}}, false, soon()),
                  std::out_of_range);
}

TEST_CASE("an absent peer costs little, and a peer that is there again is used again") {
  auto bed = std::make_unique<Bed>();
  RailOptions options = bed->rails();
  const std::string address = options.routes.at(0).peer;
  std::vector<std::byte> memory(4'096);
  Digest token = bed->regions.add({piece_of(memory), true});
  RailClient client(options);
  std::vector<std::byte> source(4'096, std::byte{3});
  const auto write = [&] {
    return client.run(std::vector<RailOperation>{{true, false, token, 0, piece_of(source)}}, soon()).at(0).reason;
  };
  CHECK(write() == Reason::none);
  bed->server.stop();
  CHECK(write() == Reason::unavailable);
  TransferServerOptions again = Bed::options();
  again.identity.addresses = {*parse_tcp_address(address)};
  TransferServer second(again, bed->regions, nullptr);
  second.start();
  CHECK(client.connect(Deadline::after_ms(patience_ms)).reason == Reason::none);
  CHECK(write() == Reason::none);
}

TEST_CASE("closing under way ends everything, and nothing works afterwards") {
  Bed bed;
  std::vector<std::byte> memory(32U << 20U);
  const Digest token = bed.regions.add({piece_of(memory), true});
  RailClient client(bed.rails());
  std::vector<std::byte> source(memory.size());
  const auto transfer = client.submit({{true, false, token, 0, piece_of(source)}}, soon(), [] {});
  client.close();
  REQUIRE(transfer->wait(Deadline::after_ms(patience_ms)));
  const Reason reason = transfer->outcomes().at(0).reason;
  CHECK((reason == Reason::none || reason == Reason::cancelled));
  CHECK(client.probe(Deadline::after_ms(patience_ms)) == Reason::cancelled);
  CHECK(bed.regions.remove(token, Deadline::after_ms(patience_ms)));
}

}  // namespace moonpool::test
