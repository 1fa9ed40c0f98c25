#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/messages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <tuple>

#include "tests/message_samples.hpp"
#include "tests/seed.hpp"

namespace moonpool {
namespace {

// All members of every struct, so that none can be forgotten on the wire: a binding with the wrong count does
// not compile.
auto members(const KeyRef& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Outcome& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const CommitItem& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const InlineItem& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const GroupRule& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const HoldResult& v) {
  const auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
auto members(const ReserveResult& v) {
  const auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
auto members(const ObjectTable::Listed& v) {
  const auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
auto members(const HolderInfo& v) {
  const auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
auto members(const Event& v) {
  const auto& [a, b, c, d, e, f, g] = v;
  return std::tie(a, b, c, d, e, f, g);
}
auto members(const PutSpec& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j);
}
auto members(const Hello& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j);
}
auto members(const Challenge& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const Authenticate& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const Welcome& v) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
auto members(const Describe& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const StatReply& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const ErrorReply& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto members(const Reserve& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const ReserveReply& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Commit& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Abort& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const PutInline& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Write& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto members(const Hold& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto members(const HoldReply& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Release& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Read& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto members(const ReadReply& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Keys& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const ExistsReply& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const Outcomes& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const Clear& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const ClearReply& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const List& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const ListReply& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const ArenaRequest& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const ArenaReply& v) {
  const auto& [a, b] = v;
  return std::tie(a, b);
}
auto members(const Match& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const MatchReply& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const Locate& v) {
  const auto& [a] = v;
  return std::tie(a);
}
auto members(const LocateReply& v) {
  const auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
auto members(const Events& v) {
  const auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
auto members(const EventsReply& v) {
  const auto& [a] = v;
  return std::tie(a);
}

template <class Value>
bool same(const Value& left, const Value& right) {
  if constexpr (requires {
                  { left == right } -> std::convertible_to<bool>;
                } && !std::ranges::range<Value>) {
    return left == right;
  } else if constexpr (std::ranges::range<Value>) {
    return std::ranges::equal(left, right, [](const auto& a, const auto& b) { return same(a, b); });
  } else {
    const auto both = [&]<std::size_t... index>(std::index_sequence<index...>) {
      const auto a = members(left), b = members(right);
      return (same(std::get<index>(a), std::get<index>(b)) && ...);
    };
    return both(std::make_index_sequence<std::tuple_size_v<decltype(members(left))>>{});
  }
}

template <class Message>
std::vector<std::byte> encoded(const Message& message) {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  message.encode(writer);
  return bytes;
}

template <class Message>
std::optional<Message> decoded(ConstBytes bytes) {
  Reader reader(bytes);
  return Message::decode(reader);
}

constexpr int rounds = 50;

TEST_CASE("every message comes back whole") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  test::MessageSamples samples(test::seed());
  for (int round = 0; round < rounds; ++round) {
    samples.each([](std::uint16_t type, const auto& message) {
      const auto bytes = encoded(message);
      const auto back = decoded<std::remove_cvref_t<decltype(message)>>(bytes);
      CHECK_MESSAGE((back && same(message, *back)), ("type " + std::to_string(type) + " changed on the way"));
      CHECK_MESSAGE(decode_message(type, bytes), ("type " + std::to_string(type) + " is not known to decode_message"));
    });
  }
}

TEST_CASE("a message cut short or with bytes left over is refused") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  test::MessageSamples samples(test::seed());
  for (int round = 0; round < rounds; ++round) {
    samples.each([](std::uint16_t type, const auto& message) {
      auto bytes = encoded(message);
      for (std::size_t length = 0; length < bytes.size(); ++length) {
        // A buffer of exactly that length: the address sanitizer sees a read past it.
        const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
        CHECK_MESSAGE(!decode_message(type, cut), ("type " + std::to_string(type) + " accepted cut short"));
      }
      bytes.push_back(std::byte{0});
      CHECK_MESSAGE(!decode_message(type, bytes), ("type " + std::to_string(type) + " accepted with a byte left over"));
    });
  }
}

// There is one way to write a message: whatever is accepted is written again as exactly the same bytes.
TEST_CASE("a changed message is refused or is another well-formed one") {
  INFO("replay with MOONPOOL_SEED=" << test::seed());
  std::mt19937_64 random(test::seed());
  test::MessageSamples samples(test::seed());
  for (int round = 0; round < rounds; ++round) {
    samples.each([&](std::uint16_t type, const auto& message) {
      auto bytes = encoded(message);
      for (int change = 0; change < 20 && !bytes.empty(); ++change) {
        bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 3 == 0 ? 0xff : random());
        const auto back = decoded<std::remove_cvref_t<decltype(message)>>(bytes);
        if (back) CHECK_MESSAGE(encoded(*back) == bytes, ("type " + std::to_string(type) + " has two encodings"));
      }
    });
  }
}

TEST_CASE("unknown types are refused") {
  for (const unsigned type : {0U, 26U, 0xffU, 0x100U, 0x109U, 0x119U, 0x1feU, 0x203U, 0xffffU}) {
    CHECK_MESSAGE(!decode_message(static_cast<std::uint16_t>(type), {}),
                  ("type " + std::to_string(type) + " accepted"));
  }
}

template <class Message>
void expect_refused(const Message& message, std::string_view what) {
  try {
    (void)encoded(message);
  } catch (const std::logic_error&) { return; }
  FAIL_CHECK(what);
}

TEST_CASE("what breaks the rules is not written") {
  const std::string long_key(key_bytes_max + 1, 'k'), long_label(label_bytes_max + 1, 'l');
  expect_refused(Keys{.keys = {{Digest{}, long_key}}}, "a key longer than 1024 bytes");
  expect_refused(Hello{.name = long_label}, "a long label");
  expect_refused(Hello{.name = "a\nb\x01"}, "a control character");
  expect_refused(Hello{.name = "\xc3("}, "broken UTF-8");
  expect_refused(Hello{.version_min = 3, .version_max = 2}, "versions in the wrong order");
  expect_refused(Hello{.magic = 7}, "another protocol's magic");
  expect_refused(Match{.namespace_id = 0, .groups = {{}}}, "a match without a namespace");
  expect_refused(Match{.namespace_id = 1}, "a match without groups");
  expect_refused(Read{.offset = ~0ULL, .length = 1}, "an offset that overflows");
  expect_refused(HoldReply{{HoldResult{.extent = {0, ~0ULL, 2}}}}, "an extent that overflows");
  expect_refused(HoldReply{.items = {{}}, .grants = {{}, {}}}, "more grants than items");
  expect_refused(ReserveReply{.grants = {{}}}, "a grant of nothing");
  expect_refused(Abort{.generations = std::vector<Generation>(batch_count_max + 1)}, "too many items");
  expect_refused(LocateReply{.places = {{0}}}, "a place that names no holder");
  Event event;
  event.tier_mask = 16;
  expect_refused(Events{.events = {event}}, "an unknown tier");
  event = {};
  event.tag.namespace_id = 1;
  event.tag.shard_index = event.tag.shard_count;
  expect_refused(Events{.events = {event}}, "a shard index past the count");
  InlineItem item;
  item.spec.length = 3;
  expect_refused(PutInline{.items = {item}}, "a length that is not the value's");
}

TEST_CASE("the limits themselves are allowed") {
  const std::string key(key_bytes_max, '\xff'), document(document_bytes_max, 'd');
  CHECK_MESSAGE(decoded<Keys>(encoded(Keys{.keys = {{Digest{}, key}}})).has_value(), "a key of 1024 bytes");
  CHECK_MESSAGE(decoded<Describe>(encoded(Describe{document})).has_value(), "a document of 64 KiB");
  const Abort abort{.generations = std::vector<Generation>(batch_count_max)};
  CHECK_MESSAGE(decoded<Abort>(encoded(abort)).has_value(), "a full batch");
}

}  // namespace
}  // namespace moonpool
