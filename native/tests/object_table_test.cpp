#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/object_table.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace moonpool {
namespace {

constexpr std::uint64_t value_bytes = 960;  // 1 KiB of space with its header
constexpr std::uint64_t place_bytes = 1024;

Digest digest_of(std::string_view key) {
  const std::uint64_t low = std::hash<std::string_view>{}(key);
  return {low, ~low * 0x9e3779b97f4a7c15ULL};
}

// A table with short words for what the tests do.
struct Pool {
  explicit Pool(std::vector<std::uint64_t> arenas, TableLimits limits = {}) : table(std::move(arenas), limits) {}

  static PutSpec spec(std::string_view key, Tag tag = {}) {
    PutSpec put;
    put.digest = digest_of(key);
    put.key = key;
    put.length = value_bytes;
    put.tag = tag;
    return put;
  }
  ReserveResult reserve(std::string_view key, ConnectionId connection = 1, Tag tag = {}) {
    return table.reserve(spec(key, tag), connection, 0, now_ms);
  }
  ReserveResult commit(const ReserveResult& reserved, ConnectionId connection = 1, std::uint32_t checksum = 7) {
    return table.commit(connection, reserved.generation, checksum, now_ms);
  }
  Status put(std::string_view key, Tag tag = {}, ConnectionId connection = 1) {
    const ReserveResult reserved = reserve(key, connection, tag);
    return reserved.status == Status::stored ? commit(reserved, connection).status : reserved.status;
  }
  HoldResult hold(std::string_view key, ConnectionId connection = 2, std::uint64_t deadline_ms = 0) {
    return table.hold(digest_of(key), key, 0, connection, deadline_ms, now_ms);
  }
  HoldResult peek(std::string_view key) { return table.peek(digest_of(key), key, 0, now_ms); }
  Outcome remove(std::string_view key) { return table.remove(digest_of(key), key, 0, Reason::removed, now_ms); }
  Outcome pin(std::string_view key) { return table.pin(digest_of(key), key, 0, now_ms); }
  std::uint64_t used_bytes() const { return table.stats().used_bytes; }
  void check() const { REQUIRE(table.check_integrity() == ""); }

  ObjectTable table;
  std::uint64_t now_ms = 1000;
};

Tag block(std::uint64_t hash, std::uint64_t parent, std::uint16_t shard_index = 0, std::uint16_t shard_count = 1) {
  Tag tag;
  tag.namespace_id = 5;
  tag.block_hash = hash;
  tag.parent_hash = parent;
  tag.shard_index = shard_index;
  tag.shard_count = shard_count;
  tag.bundle_count = shard_count;
  return tag;
}

std::string name_of(std::string_view what, std::uint64_t number) { return std::string(what) + std::to_string(number); }

}  // namespace

TEST_CASE("sixteen writers of one key: the first commit wins, the others learn it and hold no space") {
  Pool pool({64 * place_bytes});
  std::vector<ReserveResult> reserved;
  for (ConnectionId writer = 1; writer <= 16; ++writer) {
    reserved.push_back(pool.reserve("key", writer));
    REQUIRE(reserved.back().status == Status::stored);
  }
  CHECK(pool.peek("key").reason == Reason::not_committed);
  CHECK(pool.commit(reserved[9], 10, 77).status == Status::stored);
  for (ConnectionId writer = 1; writer <= 16; ++writer) {
    if (writer == 10) continue;
    const ReserveResult late = pool.commit(reserved[writer - 1], writer, writer == 3 ? 77 : writer);
    CHECK(late.status == (writer == 3 ? Status::present : Status::conflict));
    CHECK(late.present_checksum == 77);
    CHECK(late.generation == reserved[9].generation);
  }
  CHECK(pool.hold("key").generation == reserved[9].generation);
  CHECK(pool.used_bytes() == place_bytes);
  pool.check();
}

TEST_CASE("a writer that dies between reserve and commit leaves a free key and free space") {
  Pool pool({4 * place_bytes});
  const ReserveResult lost = pool.reserve("key", 1);
  pool.table.drop_connection(1);
  CHECK(pool.peek("key").reason == Reason::never_stored);
  CHECK(pool.used_bytes() == 0);
  CHECK(pool.put("key", {}, 2) == Status::stored);
  const ReserveResult late = pool.commit(lost, 1);
  CHECK(late.status == Status::refused);
  CHECK(late.reason == Reason::not_yours);
  CHECK(pool.commit(lost, 2).reason == Reason::not_yours);
  pool.check();
}

TEST_CASE("a silent writer's space is not reused until it answers, and its commit is refused") {
  Pool pool({2 * place_bytes});
  const ReserveResult silent = pool.reserve("silent", 1);
  pool.now_ms += 100;
  pool.table.quarantine_reservations_older_than(pool.now_ms);
  CHECK(pool.table.stats().quarantined_bytes == place_bytes);
  CHECK(pool.table.connection_stats(1).quarantined_count == 1);
  for (int count = 0; count < 10; ++count) {
    const ReserveResult other = pool.reserve(name_of("other", static_cast<std::uint64_t>(count)), 2);
    REQUIRE(other.status == Status::stored);
    CHECK(other.extent.offset != silent.extent.offset);
    CHECK(pool.commit(other, 2).status == Status::stored);
  }
  CHECK(pool.table.reserved(1, silent.generation).reason == Reason::deadline);
  CHECK(pool.commit(silent).reason == Reason::deadline);
  CHECK(pool.peek("silent").status == Status::miss);
  CHECK(pool.table.stats().quarantined_bytes == 0);
  CHECK(pool.commit(silent).reason == Reason::not_yours);
  pool.check();
}

TEST_CASE("a connection that went while its process may write is quarantined until it is known to be dead") {
  Pool pool({2 * place_bytes});
  const ReserveResult reserved = pool.reserve("key", 1);
  CHECK(pool.put("held", {}, 2) == Status::stored);
  CHECK(pool.hold("held", 1).status == Status::hit);
  pool.table.quarantine_connection(1);
  CHECK(pool.reserve("more", 2).status == Status::no_room);
  pool.table.drop_connection(1);
  CHECK(pool.used_bytes() == place_bytes);
  CHECK(pool.commit(reserved).reason == Reason::not_yours);
  pool.check();
}

TEST_CASE("another key under the same digest is a refused put and a miss") {
  Pool pool({4 * place_bytes});
  CHECK(pool.put("key") == Status::stored);
  PutSpec twin = Pool::spec("twin");
  twin.digest = digest_of("key");
  CHECK(pool.table.reserve(twin, 1, 0, 0).reason == Reason::digest_collision);
  CHECK(pool.table.peek(digest_of("key"), "twin", 0, 0).reason == Reason::digest_collision);
  CHECK(pool.table.peek(digest_of("key"), "key", 9, 0).reason == Reason::never_stored);  // another tenant
  CHECK(pool.table.remove(digest_of("key"), "twin", 0, Reason::removed, 0).status == Status::miss);
  CHECK(pool.table.pin(digest_of("key"), "key", 9, 0).status == Status::miss);
  CHECK(pool.peek("key").status == Status::hit);
  pool.check();
}

TEST_CASE("sizes and keys that cannot be are refused before anything is touched") {
  Pool pool({4 * place_bytes});
  PutSpec put = Pool::spec("key");
  for (const std::uint64_t length : {4 * place_bytes - 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
    put.length = length;
    CHECK(pool.table.reserve(put, 1, 0, 0).reason == Reason::value_too_large);
  }
  const std::string long_key(key_bytes_max + 1, 'k');
  CHECK(pool.reserve(long_key).reason == Reason::key_too_long);
  CHECK(pool.put(long_key.substr(1)) == Status::stored);
  CHECK(pool.put("") == Status::stored);
  put = Pool::spec("whole arena");
  put.length = 4 * place_bytes - object_header_bytes;
  CHECK(pool.table.reserve(put, 1, 12345, 0).status == Status::refused);  // over half of the capacity: the cap
  CHECK(Pool({}).put("key") == Status::refused);
  pool.check();
}

TEST_CASE("when everything is pinned each put says no_room and nothing else changes") {
  TableLimits limits;
  limits.pinned_bytes_max = 64 * place_bytes;
  Pool pool({64 * place_bytes}, limits);
  for (std::uint64_t number = 0; number < 64; ++number) {
    REQUIRE(pool.put(name_of("pinned", number)) == Status::stored);
    REQUIRE(pool.pin(name_of("pinned", number)).status == Status::done);
  }
  for (std::uint64_t number = 0; number < 100; ++number) {
    CHECK(pool.put(name_of("more", number)) == Status::no_room);
    CHECK(pool.peek(name_of("more", number)).reason == Reason::never_stored);
  }
  for (std::uint64_t number = 0; number < 64; ++number)
    CHECK(pool.peek(name_of("pinned", number)).status == Status::hit);
  CHECK(pool.table.stats().no_room_total == 100);
  pool.check();
}

TEST_CASE("polling protects nothing: under pressure every put finds room") {
  Pool pool({32 * place_bytes});
  for (std::uint64_t number = 0; number < 2000; ++number) {
    REQUIRE(pool.put(name_of("key", number)) == Status::stored);
    for (std::uint64_t back = 0; back < 40 && back <= number; ++back) {
      const bool there = pool.peek(name_of("key", number - back)).status == Status::hit;
      CHECK(there == (back < 32));
    }
  }
  CHECK(pool.table.why(digest_of("key0")) == Reason::evicted);
  pool.check();
}

TEST_CASE("reads of the dead protect nothing once they are dropped") {
  Pool pool({1000 * place_bytes});
  for (std::uint64_t number = 0; number < 1000; ++number) {
    REQUIRE(pool.put(name_of("old", number)) == Status::stored);
    if (number % 2 == 0) REQUIRE(pool.hold(name_of("old", number), 7).status == Status::hit);
  }
  CHECK(pool.table.connection_stats(7).hold_count == 500);
  CHECK(pool.hold("old1", 7).reason == Reason::connection_limit);  // half of the capacity is held
  pool.table.drop_connection(7);
  CHECK(pool.table.stats().held_bytes == 0);
  for (std::uint64_t number = 0; number < 1000; ++number) REQUIRE(pool.put(name_of("new", number)) == Status::stored);
  CHECK(pool.table.stats().evicted_total == 1000);
  pool.check();
}

TEST_CASE("what is removed while held vanishes now, and its space is freed by the last release") {
  Pool pool({2 * place_bytes});
  REQUIRE(pool.put("key") == Status::stored);
  const HoldResult first = pool.hold("key", 2);
  const HoldResult second = pool.hold("key", 3);
  CHECK(pool.remove("key").status == Status::done);
  CHECK(pool.hold("key").reason == Reason::removed);
  CHECK(pool.table.held(2, first.generation).status == Status::hit);
  CHECK(pool.put("key") == Status::stored);
  CHECK(pool.reserve("third").status == Status::stored);  // evicts the new one, never the held one
  CHECK(pool.table.release(2, first.generation).status == Status::done);
  CHECK(pool.used_bytes() == 2 * place_bytes);
  CHECK(pool.table.release(3, second.generation).status == Status::done);
  CHECK(pool.used_bytes() == place_bytes);
  CHECK(pool.table.release(3, second.generation).reason == Reason::not_yours);
  pool.check();
}

TEST_CASE("the release of a revoked copy does not end a view of the same connection") {
  Pool pool({2 * place_bytes});
  REQUIRE(pool.put("key") == Status::stored);
  const HoldResult copy = pool.hold("key", 2, pool.now_ms + 10);
  REQUIRE(pool.hold("key", 2).status == Status::hit);  // the view
  pool.now_ms += 10;
  pool.table.revoke_holds(pool.now_ms);
  CHECK(pool.table.release(2, copy.generation).reason == Reason::deadline);
  CHECK(pool.remove("key").status == Status::done);
  CHECK(pool.used_bytes() == place_bytes);
  CHECK(pool.table.held(2, copy.generation).status == Status::hit);
  CHECK(pool.table.release(2, copy.generation).status == Status::done);
  CHECK(pool.used_bytes() == 0);
  pool.check();
}

TEST_CASE("a copy past its deadline protects no more, and its reader is told") {
  TableLimits limits;
  limits.reserved_bytes_per_connection_max = limits.held_bytes_per_connection_max = place_bytes;
  Pool pool({place_bytes}, limits);
  REQUIRE(pool.put("key") == Status::stored);
  const HoldResult copy = pool.hold("key", 2, pool.now_ms + 10);
  CHECK(pool.hold("key", 2, pool.now_ms + 10).reason == Reason::none);
  pool.table.revoke_holds(pool.now_ms + 9);
  CHECK(pool.put("other") == Status::no_room);
  pool.table.revoke_holds(pool.now_ms + 10);
  CHECK(pool.table.held(2, copy.generation).reason == Reason::deadline);
  CHECK(pool.put("other") == Status::stored);
  CHECK(pool.table.held(2, copy.generation).reason == Reason::not_yours);
  pool.check();
}

TEST_CASE("a chain grows only on its parents, in one batch too, and falls with them") {
  Pool pool({16 * place_bytes});
  CHECK(pool.reserve("child", 1, block(2, 1)).reason == Reason::no_parent);
  const ReserveResult parent = pool.reserve("parent", 1, block(1, 0));
  const ReserveResult child = pool.reserve("child", 1, block(2, 1));
  CHECK(child.status == Status::stored);
  CHECK(pool.reserve("child", 2, block(2, 1)).reason == Reason::no_parent);  // the parent is another's promise
  const ReserveResult orphan = pool.reserve("orphan", 1, block(3, 1));
  CHECK(pool.commit(orphan).reason == Reason::no_parent);
  CHECK(pool.commit(parent).status == Status::stored);
  CHECK(pool.commit(child).status == Status::stored);
  std::vector<Event> events;
  pool.table.take_events(events);
  events.clear();
  CHECK(pool.table.remove(digest_of("parent"), "parent", 0, Reason::damaged, 0).status == Status::done);
  pool.table.take_events(events);
  REQUIRE(events.size() == 2);
  CHECK(events[0].tag.block_hash == 2);
  CHECK(events[0].reason == Reason::damaged);
  CHECK(events[1].tag.block_hash == 1);
  CHECK(pool.table.why(digest_of("child")) == Reason::damaged);
  pool.check();
}

TEST_CASE("a whole block under a parent that is not whole stays out of sight until it is") {
  Pool pool({16 * place_bytes});
  CHECK(pool.put("root/0", block(1, 0, 0, 2)) == Status::stored);
  CHECK(pool.put("leaf/0", block(2, 1, 0, 2), 1) == Status::stored);
  CHECK(pool.put("leaf/1", block(2, 1, 1, 2), 2) == Status::stored);
  CHECK(pool.peek("root/0").reason == Reason::incomplete_bundle);
  CHECK(pool.peek("leaf/0").reason == Reason::no_parent);
  CHECK(pool.table.why(digest_of("leaf/1")) == Reason::no_parent);
  CHECK(pool.put("root/1", block(1, 0, 1, 2)) == Status::stored);
  std::vector<Event> events;
  pool.table.take_events(events);
  REQUIRE(events.size() == 4);
  CHECK(events[0].tag.block_hash == 1);
  CHECK(events[3].tag.block_hash == 2);
  CHECK(pool.hold("leaf/1").status == Status::hit);
  pool.check();
}

TEST_CASE("clear refuses the commits of what was reserved before") {
  Pool pool({16 * place_bytes});
  CHECK(pool.put("old", block(1, 0)) == Status::stored);
  CHECK(pool.put("plain") == Status::stored);
  const ReserveResult pending = pool.reserve("pending", 1, block(2, 1));
  CHECK(pool.table.clear(5, 0) == 1);
  CHECK(pool.peek("old").reason == Reason::cleared);
  CHECK(pool.peek("plain").status == Status::hit);
  CHECK(pool.commit(pending).reason == Reason::cleared);
  CHECK(pool.table.clear(0, 0) == 1);
  CHECK(pool.used_bytes() == 0);
  std::vector<Event> events;
  pool.table.take_events(events);
  CHECK(events.back().kind == EventKind::cleared);
  pool.check();
}

TEST_CASE("chains of four blocks by four shards under pressure: no holes, whole or absent") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Pool pool({40 * place_bytes, 40 * place_bytes});
  const auto key_of = [](std::uint64_t chain, std::uint64_t depth, std::uint16_t shard) {
    return "c" + std::to_string(chain) + "/" + std::to_string(depth) + "/" + std::to_string(shard);
  };
  for (int round = 0; round < 1000; ++round) {
    const std::uint64_t chain = random() % 12;
    for (std::uint64_t depth = 1; depth <= 4; ++depth) {
      for (std::uint16_t shard = 0; shard < 4; ++shard) {
        const std::uint64_t hash = chain * 10 + depth;
        const ConnectionId writer = 10U + shard;
        pool.put(key_of(chain, depth, shard), block(hash, depth == 1 ? 0 : hash - 1, shard, 4), writer);
      }
    }
    const std::string touched = key_of(random() % 12, random() % 4 + 1, static_cast<std::uint16_t>(random() % 4));
    if (const HoldResult held = pool.hold(touched); held.status == Status::hit) pool.table.release(2, held.generation);
    for (std::uint64_t look = 0; look < 12; ++look) {
      std::set<std::uint64_t> hit_lengths;
      for (std::uint16_t shard = 0; shard < 4; ++shard) {
        std::uint64_t length = 0, found = 0;
        while (length < 4 && pool.peek(key_of(look, length + 1, shard)).status == Status::hit) ++length;
        for (std::uint64_t depth = 1; depth <= 4; ++depth)
          found += pool.peek(key_of(look, depth, shard)).status == Status::hit;
        CHECK(found == length);
        hit_lengths.insert(length);
      }
      CHECK(hit_lengths.size() == 1);
    }
    pool.check();
  }
  CHECK(pool.table.stats().evicted_total > 1000);
}

TEST_CASE("a chain of a hundred thousand blocks goes with its root") {
  Pool pool({200'000 * place_bytes});
  for (std::uint64_t depth = 1; depth <= 100'000; ++depth) {
    REQUIRE(pool.put(name_of("block", depth), block(depth, depth - 1)) == Status::stored);
  }
  CHECK(pool.remove("block1").status == Status::done);
  CHECK(pool.table.stats().object_count == 0);
  CHECK(pool.used_bytes() == 0);
  pool.check();
}

TEST_CASE("lifetimes: kept until its time, gone at its time, and descendants with their parent") {
  Pool pool({3 * place_bytes});
  PutSpec root = Pool::spec("root", block(1, 0));
  root.keep_at_most_ms = 50;
  CHECK(pool.commit(pool.table.reserve(root, 1, 0, pool.now_ms)).status == Status::stored);
  CHECK(pool.put("leaf", block(2, 1)) == Status::stored);
  PutSpec kept = Pool::spec("kept");
  kept.keep_at_least_ms = 100;
  CHECK(pool.commit(pool.table.reserve(kept, 1, 0, pool.now_ms)).status == Status::stored);
  pool.now_ms += 50;
  CHECK(pool.peek("leaf").reason == Reason::expired);
  pool.table.expire(pool.now_ms, 10);
  CHECK(pool.peek("root").reason == Reason::expired);
  CHECK(pool.put("a") == Status::stored);
  CHECK(pool.put("b") == Status::stored);
  CHECK(pool.put("c") == Status::stored);
  CHECK(pool.peek("kept").status == Status::hit);
  CHECK(pool.peek("a").reason == Reason::evicted);
  pool.now_ms += 50;
  for (const char* key : {"d", "e", "f"}) CHECK(pool.put(key) == Status::stored);
  CHECK(pool.peek("kept").reason == Reason::evicted);
  pool.check();
}

TEST_CASE("the memory of what went is bounded, the oldest is forgotten first") {
  TableLimits limits;
  limits.why_count_max = 4;
  Pool pool({64 * place_bytes}, limits);
  for (std::uint64_t number = 0; number < 6; ++number) {
    REQUIRE(pool.put(name_of("key", number)) == Status::stored);
    REQUIRE(pool.remove(name_of("key", number)).status == Status::done);
  }
  CHECK(pool.table.why(digest_of("key1")) == Reason::never_stored);
  for (std::uint64_t number = 2; number < 6; ++number)
    CHECK(pool.table.why(digest_of(name_of("key", number))) == Reason::removed);
}

TEST_CASE("a table of at most so many objects evicts for the next one") {
  TableLimits limits;
  limits.object_count_max = 3;
  Pool pool({64 * place_bytes}, limits);
  for (std::uint64_t number = 0; number < 5; ++number) CHECK(pool.put(name_of("key", number)) == Status::stored);
  CHECK(pool.table.stats().object_count == 3);
  CHECK(pool.peek("key1").reason == Reason::evicted);
  CHECK(pool.peek("key2").status == Status::hit);
}

TEST_CASE("snapshot and list walk everything in steps") {
  Pool pool({64 * place_bytes});
  for (std::uint64_t number = 0; number < 40; ++number) REQUIRE(pool.put(name_of("key", number)) == Status::stored);
  std::vector<Event> events;
  std::uint64_t cursor = 0;
  int steps = 0;
  do {
    cursor = pool.table.snapshot(cursor, 7, events);
    ++steps;
  } while (cursor != 0);
  CHECK(steps == 6);
  CHECK(events.size() == 40);
  std::vector<ObjectTable::Listed> listed;
  do { cursor = pool.table.list(0, "key1", cursor, 3, pool.now_ms + 5, listed); } while (cursor != 0);
  CHECK(listed.size() == 11);
  CHECK(listed[0].key == "key1");
  CHECK(listed[0].age_ms == 5);
}

TEST_CASE("a random life leaves counts, lists and space in order") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Pool pool({100 * place_bytes, 50 * place_bytes});
  std::vector<Generation> generations{0};
  const auto any_generation = [&] {
    return generations[generations.size() - 1 - random() % std::min<std::size_t>(40, generations.size())];
  };
  for (int step = 0; step < 30'000; ++step) {
    const std::string key = name_of("key", random() % 300);
    const ConnectionId connection = 1 + static_cast<ConnectionId>(random() % 4);
    pool.now_ms += random() % 3;
    PutSpec put = Pool::spec(key);
    put.length = random() % 3000;
    if (random() % 2 == 0) {
      const std::uint64_t hash = std::hash<std::string>{}(key) % 299 + 2;
      put.tag = block(hash, hash / 2, 0, 1);
    }
    switch (random() % 12) {
      case 0: pool.remove(key); break;
      case 1:
        pool.table.quarantine_reservations_older_than(pool.now_ms - std::min<std::uint64_t>(50, pool.now_ms));
        break;
      case 2: pool.table.abort(connection, any_generation()); break;
      case 3: pool.table.revoke_holds(pool.now_ms); break;
      case 4: random() % 20 == 0 ? pool.table.drop_connection(connection) : pool.table.expire(pool.now_ms, 5); break;
      case 5: random() % 50 == 0 ? (void)pool.table.clear(random() % 2 * 5, pool.now_ms) : (void)pool.pin(key); break;
      case 6: pool.table.unpin(digest_of(key), key, 0); break;
      case 7: generations.push_back(pool.hold(key, connection, random() % 2 * (pool.now_ms + 20)).generation); break;
      case 8: pool.table.release(connection, any_generation()); break;
      case 9: pool.table.commit(connection, any_generation(), 1, pool.now_ms); break;
      default: generations.push_back(pool.table.reserve(put, connection, connection, pool.now_ms).generation); break;
    }
    if (step % 50 == 0) pool.check();
  }
}

}  // namespace moonpool
