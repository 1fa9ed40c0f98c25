// A client of one node: put, get and everything else, synchronous, in the calling thread.
#pragma once

#include "io/node_remote.hpp"
#include "io/peer_client.hpp"

namespace moonpool {

// Values of a batch, each the concatenation of its pieces. Borrowed: keys and pieces outlive the call.
struct Values {
  std::vector<std::string_view> keys;
  std::vector<Piece> pieces;             // of all values, in order
  std::vector<std::size_t> piece_ends;   // value i has the pieces from piece_ends[i-1] to before piece_ends[i]
  std::vector<std::uint64_t> lengths;    // of each value

  [[nodiscard]] std::span<const Piece> pieces_of(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : piece_ends[index - 1];
    return std::span(pieces).subspan(begin, piece_ends[index] - begin);
  }
  [[nodiscard]] std::size_t count() const { return keys.size(); }
};
// Checks all of it before anything is touched. Throws std::invalid_argument: see check_piece(); counts that differ.
[[nodiscard]] Values make_values(std::vector<std::string_view> keys, std::vector<Piece> pieces,
                                 std::span<const std::uint64_t> piece_counts);
// Throws std::invalid_argument when two pieces share a byte: a read cannot fill both.
void check_disjoint(const Values& values);

struct PutSettings {
  std::span<const Tag> tags;  // empty, or one per key
  std::uint64_t bundle_id = 0;
  std::uint16_t bundle_count = 1;
  std::uint8_t priority = 0;
  std::uint32_t keep_at_least_ms = 0;
  std::uint32_t keep_at_most_ms = 0;
};

struct KeyPut {
  Status status = Status::refused;
  Reason reason = Reason::unavailable;
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  Generation generation = 0;
};
struct PutReport {
  std::vector<KeyPut> items;
  std::uint64_t incarnation = 0;
};

struct KeyRead {
  Status status = Status::miss;
  Reason reason = Reason::unavailable;
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  Generation generation = 0;
};
struct ReadReport {
  std::vector<KeyRead> items;
  std::uint64_t byte_count = 0;  // verified and applied
};

// An object's bytes, held on the node until the last owner of this lets go.
class HeldBytes {
 public:
  HeldBytes(std::shared_ptr<Session> session, std::shared_ptr<Mapping> mapping, ConstBytes bytes, const KeyRead& item);
  HeldBytes(std::vector<std::byte> copy, const KeyRead& item);  // over a socket: a copy, nothing is held
  ~HeldBytes();
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  HeldBytes(HeldBytes&&) = delete;
  HeldBytes& operator=(HeldBytes&&) = delete;
  [[nodiscard]] ConstBytes bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t checksum() const { return checksum_; }
  [[nodiscard]] Generation generation() const { return generation_; }
  [[nodiscard]] bool verify() const;
  [[nodiscard]] bool of_this_process() const { return !session_ || session_->of_this_process(); }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<Mapping> mapping_;
  std::vector<std::byte> copy_;
  ConstBytes bytes_;
  std::uint32_t checksum_;
  Generation generation_;
};
struct Views {
  std::vector<std::shared_ptr<HeldBytes>> held;  // null where the key missed
  ReadReport report;
};

struct MatchedHolder {
  std::string name;
  std::uint64_t incarnation = 0;
  std::uint32_t block_count = 0;
  std::uint8_t tier_mask = 0;
};
struct MatchReport {
  std::uint32_t fetchable = 0;
  std::vector<MatchedHolder> holders;
  bool warming = false;
  bool reachable = false;
};
[[nodiscard]] MatchReport match_at(PeerClient& peer, const Match& question, Deadline deadline);
// The document of `stat`, or nullopt.
[[nodiscard]] std::optional<std::string> stat_at(PeerClient& peer, Deadline deadline);

struct Listing {
  std::uint64_t cursor = 0;
  std::vector<ObjectTable::Listed> items;
};

class NodeClient {
 public:
  // rail_count: connections that move the bytes of values from and to another host.
  NodeClient(PeerOptions options, bool shared_memory, std::uint32_t rail_count = 2);

  [[nodiscard]] PeerClient& peer() { return peer_; }
  [[nodiscard]] bool uses_shared_memory(const Session& session) const {
    return shared_memory_ && session.info().shared_memory;
  }
  [[nodiscard]] NodeRails& rails() { return rails_; }
  void close() {
    peer_.close();
    rails_.close();
  }

  [[nodiscard]] PutReport put(const Values& values, const PutSettings& settings, Deadline deadline);
  [[nodiscard]] ReadReport get_into(const Values& values, Deadline deadline);
  [[nodiscard]] Views get_views(std::span<const std::string_view> keys, bool verify, Deadline deadline);
  // exists, remove, pin, unpin, why
  [[nodiscard]] ReadReport ask_about(MessageType verb, std::span<const std::string_view> keys, Deadline deadline);
  [[nodiscard]] std::optional<std::uint64_t> clear(std::uint64_t namespace_id, Deadline deadline);
  [[nodiscard]] Listing list(std::string_view prefix, std::uint64_t cursor, std::uint32_t count, Deadline deadline);

 private:
  struct Question {
    std::span<const std::string_view> keys;
    std::span<const std::size_t> window;
    Deadline deadline;
  };
  void find_directly(Session& session, const Question& question, ReadReport& report);
  Reason ask_window(Session& session, MessageType verb, const Question& question, ReadReport& report);

  PeerClient peer_;
  NodeRails rails_;
  bool shared_memory_;
};

}  // namespace moonpool
