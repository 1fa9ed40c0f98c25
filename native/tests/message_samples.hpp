// Random well-formed messages of every type, for round-trip tests and as seeds for the fuzzer.
#pragma once

#include <random>
#include <string_view>
#include <vector>

#include "core/messages.hpp"

namespace moonpool::test {

class MessageSamples {
 public:
  explicit MessageSamples(std::uint64_t seed) : random_(seed) {}

  // take(type, message) is called once per message type, replies included.
  template <class Take>
  void each(Take&& take) {
    each_session(take);
    each_write(take);
    each_read(take);
    each_index(take);
  }

 private:
  static constexpr auto reply(MessageType type) {
    return static_cast<std::uint16_t>(static_cast<unsigned>(type) | static_cast<unsigned>(MessageType::reply_bit));
  }
  static constexpr auto request(MessageType type) { return static_cast<std::uint16_t>(type); }

  template <class Take>
  void each_session(Take& take) {
    using enum MessageType;
    take(request(hello), Hello{.version_max = 9,
                               .role = Role::owner,
                               .process_id = u32(),
                               .incarnation = u64(),
                               .nonce = nonce(),
                               .tenant = text(),
                               .name = text(),
                               .site = text()});
    take(reply(hello), Challenge{u8(), u64(), nonce()});
    take(request(authenticate), Authenticate{digest()});
    take(reply(authenticate), Welcome{digest(), u64(), u64(), u32(), flag(), flag(), u32(), text(), text(), text(),
                                      some<std::uint64_t>([&] { return u64(); })});
    take(request(describe), Describe{R"({"engine":"é"})"});
    take(reply(describe), outcomes());
    take(reply(stat), StatReply{bytes()});
    take(request(error), ErrorReply{reason(), 1, 3, text()});
  }

  template <class Take>
  void each_write(Take& take) {
    using enum MessageType;
    take(request(reserve), Reserve{u64(), u32(), some<PutSpec>([&] { return spec(u64()); })});
    for (const auto type : {reserve, commit, put_inline}) take(reply(type), reserve_reply());
    take(request(commit), Commit{u64(), some<CommitItem>([&] { return CommitItem{u64(), u32()}; })});
    take(request(abort), Abort{u64(), some<Generation>([&] { return u64(); })});
    take(request(put_inline), PutInline{u64(), some<InlineItem>([&] {
                                          const ConstBytes value = bytes();
                                          return InlineItem{spec(value.size()), u32(), value};
                                        })});
    take(request(write), Write{u64(), u64(), u32(), bytes()});
    for (const auto type : {abort, write, remove, pin, unpin, why, damaged}) take(reply(type), outcomes());
    for (const auto type : {exists, remove, pin, unpin, why, damaged}) take(request(type), Keys{u64(), keys()});
    take(request(clear), Clear{u64(), u64()});
    take(reply(clear), ClearReply{u64()});
  }

  template <class Take>
  void each_read(Take& take) {
    using enum MessageType;
    take(request(hold), Hold{u64(), flag(), u32(), keys()});
    take(reply(hold), HoldReply{hold_results()});
    take(reply(hold), HoldReply{{{}, {}}, {digest(), digest()}});
    take(reply(reserve), ReserveReply{{{}}, {digest()}});
    take(request(release), Release{u64(), some<Generation>([&] { return u64(); })});
    take(request(read), Read{u64(), u64(), u32(), u32() % frame_payload_bytes_max});
    take(reply(read), ReadReply{outcome(), bytes()});
    take(reply(exists), ExistsReply{hold_results()});
    take(request(list), List{u64(), u32() % batch_count_max, text()});
    take(reply(list), ListReply{u64(), some<ObjectTable::Listed>([&] {
                                  return ObjectTable::Listed{std::string(text()), u64(), tag(), flag(), u32(), u64()};
                                })});
    take(request(arena), ArenaRequest{u32(), flag()});
    take(reply(arena), ArenaReply{outcome(), u64()});
  }

  template <class Take>
  void each_index(Take& take) {
    using enum MessageType;
    take(request(match),
         Match{u64() | 1, some<std::uint64_t>([&] { return u64(); }), {GroupRule{0, 1, 0}, GroupRule{1, 2, 8}}});
    take(reply(match), MatchReply{flag(), u32(), holders()});
    take(request(locate), Locate{some<Digest>([&] { return digest(); })});
    take(reply(locate), LocateReply{flag(), std::vector<HolderInfo>(3, holder()), {{0, 2}, {}, {1}}});
    take(request(events),
         Events{u64(), u64(), static_cast<EventsPhase>(u64() % 4), some<Event>([&] { return event(); })});
    take(reply(events), EventsReply{u64()});
  }

  template <class Item, class Make>
  std::vector<Item> some(Make make) {
    std::vector<Item> items(u64() % 4);
    for (auto& item : items) item = make();
    return items;
  }

  std::uint64_t u64() { return random_(); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(random_()); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(random_()); }
  std::uint8_t u8() { return static_cast<std::uint8_t>(random_()); }
  bool flag() { return random_() % 2 == 0; }
  Digest digest() { return {u64(), u64()}; }
  Status status() { return static_cast<Status>(u64() % (static_cast<unsigned>(status_last) + 1)); }
  Reason reason() { return static_cast<Reason>(u64() % (static_cast<unsigned>(reason_last) + 1)); }
  Outcome outcome() { return {status(), reason()}; }
  Nonce nonce() {
    Nonce nonce;
    for (auto& byte : nonce) byte = static_cast<std::byte>(random_());
    return nonce;
  }
  std::string_view text() {
    static constexpr std::string_view texts[] = {"", "default", "node-7", "Zürich", "\xf0\x9f\x8c\x99 pool"};
    return texts[u64() % std::size(texts)];
  }
  ConstBytes bytes() {
    static constexpr std::string_view text = "The bytes of a value, as many as needed.\0\xff";
    return std::as_bytes(std::span(text)).first(u64() % text.size());
  }
  Extent extent() { return {u32(), u64() >> 1, u64() >> 1}; }
  Tag tag() {
    if (flag()) return {};
    Tag tag{u64() | 1, u64(), u64(), 0, 1, 1, u16(), flag()};
    tag.shard_count = static_cast<std::uint16_t>(u64() % 8 + 1);
    tag.shard_index = static_cast<std::uint16_t>(u64() % tag.shard_count);
    tag.bundle_count = static_cast<std::uint16_t>(u64() % 8 + 1);
    return tag;
  }
  PutSpec spec(std::uint64_t length) {
    return {digest(), text(), u64(), length, tag(), u64(), static_cast<std::uint16_t>(u64() % 9 + 1),
            u8(),     u32(),  u32()};
  }
  Event event() {
    return {static_cast<EventKind>(u64() % 3),     digest(), tag(), u64(), u64(),
            static_cast<std::uint8_t>(u64() % 16), reason()};
  }
  HolderInfo holder() { return {u64(), text(), text(), text(), u32(), u8()}; }
  std::vector<HolderInfo> holders() {
    return some<HolderInfo>([&] { return holder(); });
  }
  std::vector<KeyRef> keys() {
    return some<KeyRef>([&] { return KeyRef{digest(), text()}; });
  }
  ReserveReply reserve_reply() {
    return {some<ReserveResult>([&] { return ReserveResult{status(), reason(), u64(), extent(), u32(), u64()}; })};
  }
  std::vector<HoldResult> hold_results() {
    return some<HoldResult>([&] { return HoldResult{status(), reason(), u64(), extent(), u32()}; });
  }
  Outcomes outcomes() {
    return {some<Outcome>([&] { return outcome(); })};
  }

  std::mt19937_64 random_;
};

}  // namespace moonpool::test
