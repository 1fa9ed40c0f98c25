// The passive end of one rail: receives straight into the memory that a slice names, and sends straight from it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>

#include "core/rail_frame.hpp"
#include "io/connection.hpp"
#include "io/rail_pieces.hpp"
#include "io/region_authority.hpp"

namespace moonpool {

// Where small messages go. Rail threads call it.
class RailInbox {
 public:
  RailInbox() = default;
  virtual ~RailInbox() = default;
  RailInbox(const RailInbox&) = delete;
  RailInbox& operator=(const RailInbox&) = delete;
  RailInbox(RailInbox&&) = delete;
  RailInbox& operator=(RailInbox&&) = delete;

  // none: it is delivered, or was before (the same identity).
  [[nodiscard]] virtual Reason deliver(const Principal& from, const Digest& identity, std::string message) = 0;
};

struct RailCounters {
  std::atomic<std::uint64_t> read_bytes{0}, written_bytes{0}, read_slices{0}, written_slices{0};
  std::atomic<std::uint64_t> refused_slices{0}, messages{0}, malformed{0}, late{0}, accepted{0}, closed{0}, errors{0};
};

class RailSession {
 public:
  // What a session asks of the server that has it.
  struct Surroundings {
    RegionAuthority& authority;
    RailInbox* inbox;  // null: messages are refused
    RailCounters& counters;
    std::uint64_t silence_ms;  // in the middle of a slice or with replies that nobody takes
    // Closes another rail of the same client, and calls answer_dropped(number) on this session when that is done.
    std::function<void(RailSession& session, ConnectionId rail, std::uint32_t number)> cancel;
  };
  RailSession(ProvenRail rail, Surroundings surroundings);
  // Nobody is inside any slice of it any more.
  ~RailSession();
  RailSession(const RailSession&) = delete;
  RailSession& operator=(const RailSession&) = delete;
  RailSession(RailSession&&) = delete;
  RailSession& operator=(RailSession&&) = delete;

  // Serves what has come and sends what is owed, for a bounded time. False: the rail has ended.
  [[nodiscard]] bool serve();
  [[nodiscard]] std::uint32_t wanted_events() const;
  [[nodiscard]] bool is_late(std::uint64_t now_ms) const;
  // False: the rail has ended.
  [[nodiscard]] bool answer_dropped(std::uint32_t number);
  [[nodiscard]] ConnectionId id() const { return rail_.id; }
  [[nodiscard]] const Principal& principal() const { return rail_.principal; }
  [[nodiscard]] int socket() const { return rail_.socket.number(); }

 private:
  struct Reply {
    std::array<std::byte, rail_reply_bytes> header{};
    ConstBytes payload;
    SliceRequest slice;  // entered while payload is not empty
  };
  // A slice or message whose bytes are coming.
  struct Coming {
    RailRequest request;
    MutableBytes target;       // empty: the bytes are refused, and skipped
    std::uint64_t received = 0;
    std::uint32_t checksum = 0;
    Reason refusal = Reason::none;
    bool entered = false;
    bool open = false;  // something is coming
  };
  [[nodiscard]] RailStep receive();
  [[nodiscard]] RailStep receive_into_target();
  [[nodiscard]] bool consume();
  void begin(const RailRequest& request);
  void begin_write(const RailRequest& request);
  void answer_read(const RailRequest& request);
  void take_buffered();
  void applied(std::uint64_t count);
  void finish();
  [[nodiscard]] Reason deliver();
  void answer(const RailReply& reply);
  [[nodiscard]] RailStep flush();
  void sent(std::size_t count);
  [[nodiscard]] bool crowded() const;
  [[nodiscard]] std::uint64_t remaining() const { return coming_.request.length - coming_.received; }

  ProvenRail rail_;
  Surroundings surroundings_;
  RailInput input_;
  Coming coming_;
  std::string message_;
  std::deque<Reply> replies_;
  std::size_t front_sent_ = 0;  // bytes of the first reply that are sent
  std::uint64_t turn_bytes_left_ = 0;
  std::uint64_t moved_ms_;      // when a byte last moved
};

}  // namespace moonpool
