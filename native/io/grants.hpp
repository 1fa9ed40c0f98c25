// What remote connections of a node may touch over rails: each hold and each reservation has a token, and memory that
// somebody is inside of is not let go.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/siphash.hpp"
#include "io/region_authority.hpp"

namespace moonpool {

// The node's loop gives and takes back; rail threads enter and leave.
class Grants final : public RegionAuthority {
 public:
  struct What {
    ConnectionId connection = 0;
    Generation generation = 0;
    MutableBytes memory;
    bool write = false;
    std::uint64_t expires_at_ms = 0;  // 0: never by itself
  };
  // Taken back while somebody was inside, and now nobody is.
  struct Vacated {
    ConnectionId connection = 0;
    Generation generation = 0;
    bool write = false;
    std::uint32_t use_count = 0;  // how often it was given
  };
  enum class Ending : std::uint8_t {
    unknown,  // there is no such grant
    shared,   // it was given several times, and is still good
    free,     // nobody is inside, and nobody will be
    busy,     // nobody new comes in; who is inside will be told of by take_vacated()
  };

  // vacated: something is to be taken with take_vacated(); called by rail threads, must not block.
  explicit Grants(std::function<void()> vacated);

  // Its token; the same again for what the connection has already.
  [[nodiscard]] Digest give(const What& what);
  // Ends one use of it.
  [[nodiscard]] Ending end(ConnectionId connection, Generation generation);
  // Ends all uses of everything that the connection has. True: somebody is still inside something.
  [[nodiscard]] bool end_all(ConnectionId connection);
  // Whether anybody is inside anything that the connection had.
  [[nodiscard]] bool busy(ConnectionId connection) const;
  // What expired and nobody is inside of; the rest is vacated later.
  [[nodiscard]] std::vector<Vacated> take_expired(std::uint64_t now_ms);
  [[nodiscard]] std::vector<Vacated> take_vacated();

  struct Counts {
    std::size_t given = 0;
    std::size_t busy = 0;  // taken back, and somebody is inside
    std::uint64_t inside = 0;        // slices under way
    std::uint64_t denied_total = 0;  // slices that named no grant, or more than it covers
  };
  [[nodiscard]] Counts counts() const;

  [[nodiscard]] std::optional<MutableBytes> enter(const SliceRequest& slice, Reason& why) override;
  void leave(const SliceRequest& slice) noexcept override;

 private:
  struct Entry {
    What what;
    std::uint32_t use_count = 1;
    std::uint32_t inside_count = 0;
    bool ended = false;
  };
  struct TokenHash {
    // Tokens come out of a keyed hash: any part of one is as good as another hash of it.
    [[nodiscard]] std::size_t operator()(const Digest& token) const { return static_cast<std::size_t>(token.low); }
  };
  using Owner = std::pair<ConnectionId, Generation>;
  using Entries = std::unordered_map<Digest, Entry, TokenHash>;
  [[nodiscard]] Digest fresh_token();
  [[nodiscard]] static Vacated vacated_of(const Entry& entry);
  // Nobody new comes in. True: and nobody is inside, so it is gone.
  bool finish(Entries::iterator found);

  std::function<void()> vacated_;
  SipKey key_;  // of the tokens
  std::uint64_t token_count_ = 0;
  mutable std::mutex mutex_;  // of all below
  Entries entries_;
  std::map<Owner, Digest> by_owner_;  // what has not ended
  std::map<ConnectionId, std::uint32_t> busy_;
  std::vector<Vacated> gone_;
  std::uint64_t inside_count_ = 0;
  std::uint64_t denied_total_ = 0;
};

}  // namespace moonpool
