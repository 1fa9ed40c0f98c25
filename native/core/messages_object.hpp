// Messages about objects: put, read, look up, remove.
#pragma once

#include "core/frame.hpp"
#include "core/object_table.hpp"
#include "core/types.hpp"

namespace moonpool {

struct KeyRef {
  Digest digest{};
  std::string_view key{};
};

struct Reserve {
  std::uint64_t incarnation = 0;
  std::uint32_t arena_preferred = 0;
  std::vector<PutSpec> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Reserve> decode(Reader& from);
};

struct ReserveReply {  // also of commit and put_inline
  std::vector<ReserveResult> items{};
  std::vector<Digest> grants{};  // reserve, to remote clients: under which token rails may write each item
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ReserveReply> decode(Reader& from);
};

struct CommitItem {
  Generation generation = 0;
  std::uint32_t checksum = 0;
};

struct Commit {
  std::uint64_t incarnation = 0;
  std::vector<CommitItem> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Commit> decode(Reader& from);
};

struct Abort {  // reply: Outcomes
  std::uint64_t incarnation = 0;
  std::vector<Generation> generations{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Abort> decode(Reader& from);
};

struct InlineItem {  // spec.length is the size of value
  PutSpec spec{};
  std::uint32_t checksum = 0;
  ConstBytes value{};
};

struct PutInline {
  std::uint64_t incarnation = 0;
  std::vector<InlineItem> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<PutInline> decode(Reader& from);
};

struct Write {  // reply: Outcomes of one
  std::uint64_t incarnation = 0;
  Generation generation = 0;
  std::uint64_t offset = 0;
  ConstBytes bytes{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Write> decode(Reader& from);
};

struct Hold {
  std::uint64_t incarnation = 0;
  bool view = false;
  std::uint32_t deadline_ms = 0;
  std::vector<KeyRef> keys{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Hold> decode(Reader& from);
};

struct HoldReply {
  std::vector<HoldResult> items{};
  std::vector<Digest> grants{};  // to remote clients: under which token rails may read each item
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<HoldReply> decode(Reader& from);
};

struct Release {  // one way
  std::uint64_t incarnation = 0;
  std::vector<Generation> generations{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Release> decode(Reader& from);
};

struct Read {
  std::uint64_t incarnation = 0;
  Generation generation = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Read> decode(Reader& from);
};

struct ReadReply {
  Outcome outcome{};
  ConstBytes bytes{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ReadReply> decode(Reader& from);
};

struct Keys {  // exists, remove, pin, unpin, why
  std::uint64_t incarnation = 0;
  std::vector<KeyRef> keys{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Keys> decode(Reader& from);
};

struct ExistsReply {  // status, reason, generation, checksum; length in extent
  std::vector<HoldResult> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ExistsReply> decode(Reader& from);
};

struct Outcomes {  // for `why`: the reasons
  std::vector<Outcome> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Outcomes> decode(Reader& from);
};

struct Clear {
  std::uint64_t incarnation = 0, namespace_id = 0;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Clear> decode(Reader& from);
};

struct ClearReply {
  std::uint64_t object_count = 0;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ClearReply> decode(Reader& from);
};

struct List {
  std::uint64_t cursor = 0;
  std::uint32_t count = 0;
  std::string_view prefix{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<List> decode(Reader& from);
};

struct ListReply {
  std::uint64_t cursor = 0;
  std::vector<ObjectTable::Listed> items{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ListReply> decode(Reader& from);
};

// Asks for the catalogue in place of an arena: see core/catalogue.hpp.
inline constexpr std::uint32_t catalogue_arena = 0xffff'ffff;

struct ArenaRequest {
  std::uint32_t arena_index = 0;  // or catalogue_arena
  bool writable = false;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ArenaRequest> decode(Reader& from);
};

struct ArenaReply {
  Outcome outcome{};
  std::uint64_t bytes = 0;
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ArenaReply> decode(Reader& from);
};

}  // namespace moonpool
