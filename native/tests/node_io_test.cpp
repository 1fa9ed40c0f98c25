// A node, a directory and clients in one process, in threads: what the sanitizers watch.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "io/directory_client.hpp"
#include "io/directory_server.hpp"
#include "io/handshake.hpp"
#include "io/layout.hpp"
#include "io/node_server.hpp"
#include "tests/seed.hpp"

namespace moonpool::test {
namespace {

constexpr std::uint64_t patience_ms = 20'000;
constexpr std::uint64_t segment_bytes = 16ULL << 20U;

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moonpool-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder(Folder&&) = delete;
  Folder& operator=(Folder&&) = delete;
  [[nodiscard]] std::string at(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

template <class Condition>
bool wait_until(Condition condition) {
  const Deadline deadline = Deadline::after_ms(patience_ms);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

NodeOptions node_options(const Folder& folder) {
  NodeOptions options;
  options.identity.path = folder.at("node.sock");
  options.identity.name = "node";
  options.identity.addresses = {{"127.0.0.1", 0}};
  options.segment_bytes = segment_bytes;
  options.arena_bytes = segment_bytes / 2;
  options.directories = {folder.at("directory.sock")};
  return options;
}

PeerOptions peer_options(const std::string& path, std::string tenant = "default") {
  PeerOptions options;
  options.address = parse_peer_address(path);
  options.tenant = std::move(tenant);
  options.name = "test";
  return options;
}

// Where it listens by TCP, as its status says.
std::string tcp_address_of(NodeServer& node) {
  const std::string status = node.status();
  const std::string name = "\"address\":\"";
  const std::size_t begin = status.find(name) + name.size();
  return status.substr(begin, status.find('"', begin) - begin);
}

bool is_ready(NodeServer& node) { return node.status().find("\"state\":\"ready\"") != std::string::npos; }

// The bytes of a key: any foreign or torn byte shows.
std::vector<std::byte> bytes_of(std::uint64_t key, std::size_t byte_count) {
  std::mt19937_64 random(key * 2'654'435'761U + 1);
  std::vector<std::byte> bytes(byte_count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Values one_value(std::string_view key, ConstBytes bytes) {
  return make_values({key}, {{address_of(bytes), bytes.size()}}, {});
}

KeyPut put_one(NodeClient& client, std::string_view key, ConstBytes bytes) {
  return client.put(one_value(key, bytes), {}, Deadline::after_ms(patience_ms)).items.at(0);
}

KeyRead get_one(NodeClient& client, std::string_view key, std::vector<std::byte>& into) {
  return client.get_into(one_value(key, into), Deadline::after_ms(patience_ms)).items.at(0);
}

void wrong_bytes_never(NodeClient& client, std::uint64_t key, std::size_t byte_count) {
  std::vector<std::byte> into(byte_count);
  const KeyRead read = get_one(client, "key" + std::to_string(key), into);
  if (read.status == Status::hit) {
    CHECK_MESSAGE(into == bytes_of(key, byte_count), "a hit has the bytes that were put");
  }
}

// Threads that share one client, and clients of every transport, put and get until the segment has turned over
// several times.
TEST_CASE("many threads put and get") {
  const Folder folder;
  NodeServer node(node_options(folder));
  node.start();
  CHECK_MESSAGE(wait_until([&] { return is_ready(node); }), "the segment is populated");
  NodeClient shared(peer_options(folder.at("node.sock")), true);
  NodeClient socket(peer_options(folder.at("node.sock")), false);
  NodeClient remote(peer_options(tcp_address_of(node)), true);
  CHECK(remote.peer().connect(patience_ms).reason == Reason::none);
  CHECK(shared.peer().connect(patience_ms).reason == Reason::none);
  CHECK(socket.peer().connect(patience_ms).reason == Reason::none);
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  const std::uint64_t first = test::seed();
  std::atomic<std::uint64_t> hits{0};
  const auto work = [&](NodeClient& client, std::uint64_t offset) {
    for (std::uint64_t round = 0; round < 60; ++round) {
      const std::uint64_t key = first + (round * 7 + offset) % 90;
      const std::size_t byte_count = key % 3 == 0 ? 700 : 300'000;
      const std::vector<std::byte> bytes = bytes_of(key, byte_count);
      const KeyPut put = put_one(client, "key" + std::to_string(key), bytes);
      CHECK_MESSAGE((put.status == Status::stored || put.status == Status::present || put.status == Status::no_room),
                    "a put stores or finds");
      wrong_bytes_never(client, key, byte_count);
      const Views views = client.get_views(std::vector<std::string_view>{"key" + std::to_string(key)}, true,
                                           Deadline::after_ms(patience_ms));
      if (views.held[0]) {
        hits.fetch_add(1);
        CHECK_MESSAGE(std::equal(bytes.begin(), bytes.end(), views.held[0]->bytes().begin()),
                      "a view shows the bytes that were put");
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t index = 0; index < 4; ++index) threads.emplace_back([&, index] { work(shared, index * 11); });
    threads.emplace_back([&] { work(socket, 5); });
    for (std::uint64_t index = 0; index < 2; ++index) threads.emplace_back([&, index] { work(remote, 3 + index * 9); });
    for (int round = 0; round < 20; ++round) {
      (void)node.counters();
      CHECK(node.check_integrity() == std::string{});
    }
  }
  CHECK_MESSAGE(hits.load() > 0, "some views were had");
  shared.peer().close();
  socket.peer().close();
  CHECK(!remote.rails().status().empty());
  remote.close();
  CHECK_MESSAGE(
      wait_until([&] { return node.counters()["hold_count"] == 0 && node.counters()["reservation_count"] == 0; }),
      "nothing is held at the end");
  CHECK(node.check_integrity() == std::string{});
  node.stop();
}

PutReport put_chain(NodeClient& client, std::span<const std::string> keys, ConstBytes bytes) {
  std::vector<std::string_view> names(keys.begin(), keys.end());
  std::vector<Piece> pieces(keys.size(), Piece{address_of(bytes), bytes.size()});
  std::vector<Tag> tags;
  for (std::uint64_t index = 0; index < keys.size(); ++index) {
    Tag tag;
    tag.namespace_id = 7;
    tag.block_hash = index + 1;
    tag.parent_hash = index;
    tags.push_back(tag);
  }
  PutSettings settings;
  settings.tags = tags;
  return client.put(make_values(std::move(names), std::move(pieces), {}), settings, Deadline::after_ms(patience_ms));
}

// Soft state: a directory that comes back is told everything again.
TEST_CASE("a directory is told again after a restart") {
  const Folder folder;
  NodeServer node(node_options(folder));
  node.start();
  CHECK_MESSAGE(wait_until([&] { return is_ready(node); }), "the segment is populated");
  NodeClient client(peer_options(folder.at("node.sock")), true);
  CHECK(client.peer().connect(patience_ms).reason == Reason::none);
  const std::vector<std::string> keys = {"a", "b", "c"};
  const std::vector<std::byte> bytes = bytes_of(1, 5'000);
  for (const KeyPut& item : put_chain(client, keys, bytes).items)
    CHECK_MESSAGE(item.status == Status::stored, "blocks are stored");
  Match question;
  question.namespace_id = 7;
  question.block_hashes = {1, 2, 3};
  question.groups = {{0, 1, 0}};
  DirectoryClient directory_client(peer_options(folder.at("directory.sock")));
  for (int life = 0; life < 3; ++life) {
    DirectoryOptions options;
    options.identity.path = folder.at("directory.sock");
    options.identity.name = "directory";
    options.entry_count_max = 1'000;
    DirectoryServer directory(options);
    directory.start();
    (void)directory_client.peer().connect(patience_ms);
    CHECK_MESSAGE(
        wait_until([&] {
          const MatchReport found = match_at(directory_client.peer(), question, Deadline::after_ms(patience_ms));
          return found.fetchable == 3 && !found.warming && found.holders.size() == 1 && found.holders[0].name == "node";
        }),
        "the directory knows the chain");
    CHECK(directory.check_integrity() == std::string{});
    directory.stop();
  }
  CHECK_MESSAGE(match_at(client.peer(), question, Deadline::after_ms(patience_ms)).fetchable == 3,
                "the node answers itself");
}

// Closing while other threads are in calls, stopping the node under them: values, never a hang or a crash.
TEST_CASE("ends of life in the middle of calls") {
  const Folder folder;
  std::optional<NodeServer> node(std::in_place, node_options(folder));
  node->start();
  CHECK_MESSAGE(wait_until([&] { return is_ready(*node); }), "the segment is populated");
  NodeClient client(peer_options(folder.at("node.sock")), true);
  CHECK(client.peer().connect(patience_ms).reason == Reason::none);
  const std::vector<std::byte> bytes = bytes_of(3, 100'000);
  CHECK(put_one(client, "key3", bytes).status == Status::stored);
  Views view = client.get_views(std::vector<std::string_view>{"key3"}, true, Deadline::after_ms(patience_ms));
  std::atomic<bool> closed{false};
  {
    std::vector<std::jthread> threads;
    for (int index = 0; index < 3; ++index) {
      threads.emplace_back([&] {
        while (!closed.load()) {
          try {
            wrong_bytes_never(client, 3, 100'000);
          } catch (const std::logic_error&) {
            return;  // closed under us
          }
        }
      });
    }
    node->stop();
    node.reset();
    client.peer().close();
    closed.store(true);
  }
  CHECK_MESSAGE(std::equal(bytes.begin(), bytes.end(), view.held.at(0)->bytes().begin()),
                "a view outlives the node and the client");
}

TEST_CASE("what is wrong is said before anything is touched") {
  const auto throws = [](auto&& function) {
    try {
      function();
    } catch (const std::invalid_argument&) { return true; }
    return false;
  };
  std::vector<std::byte> bytes(100);
  const std::uint64_t at = address_of(bytes);
  CHECK_MESSAGE(throws([&] { (void)make_values({"k"}, {{0, 10}}, {}); }), "null address");
  CHECK_MESSAGE(throws([&] { (void)make_values({"k"}, {{at, 0}}, {}); }), "empty piece");
  CHECK_MESSAGE(throws([&] { (void)make_values({"k"}, {{at, std::numeric_limits<std::uint64_t>::max()}}, {}); }),
                "wraps round");
  CHECK_MESSAGE(throws([&] { (void)make_values({"k"}, {{at, 1}, {at, 1}}, {}); }), "a piece too many");
  CHECK_MESSAGE(throws([&] { (void)make_values({""}, {{at, 1}}, {}); }), "empty key");
  CHECK_MESSAGE(throws([&] { check_disjoint(make_values({"k", "l"}, {{at, 50}, {at + 49, 50}}, {})); }), "overlap");
  CHECK_MESSAGE(!throws([&] { check_disjoint(make_values({"k", "l"}, {{at + 50, 50}, {at, 50}}, {})); }),
                "neighbours are no overlap");
  CHECK_MESSAGE(throws([&] { Layout({at}, {5}, {10}, 2); }), "blocks that overlap");
}

}  // namespace
}  // namespace moonpool::test
