// A client's connection to one incarnation of a peer. Several threads may share it: an exchange takes a turn,
// bytes are copied outside of it.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "core/siphash.hpp"
#include "io/frame_stream.hpp"
#include "io/heartbeat.hpp"
#include "io/keeper.hpp"
#include "io/memory.hpp"
#include "io/peer_address.hpp"
#include "io/spin.hpp"
#include "io/turn.hpp"
#include "io/verified.hpp"

namespace moonpool {

struct PeerOptions {
  PeerAddress address;
  SipKey secret{};
  std::string tenant = "default";
  std::string name;
  std::uint64_t connect_timeout_ms = 2'000;
};

// What the welcome said.
struct SessionInfo {
  std::uint64_t incarnation = 0;
  std::uint64_t tenant_id = 0;
  ConnectionId connection = 0;
  bool shared_memory = false;
  std::uint32_t small_put_bytes_max = 0;
  std::string node_name;
  std::string site;
  std::string address;  // at which others can reach it
  std::vector<std::uint64_t> arena_bytes;
};

// Reason none: payload is the reply. Everything else is a value too: nothing here throws for what a peer does.
struct Answer {
  Reason reason = Reason::none;
  bool asked = false;  // the request went out (at least into the socket's queue)
  std::vector<std::byte> payload;
  Descriptor file;
  std::string message;
};

class Session {
 public:
  struct Opened {
    std::shared_ptr<Session> session;  // null: see reason
    Reason reason = Reason::none;
    std::string message;
  };
  [[nodiscard]] static Opened open(const PeerOptions& options, Deadline deadline);
  explicit Session(Descriptor socket);  // not greeted yet: see open()
  // Says goodbye, unless the connection is broken or belongs to the parent of this process.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;

  template <class Message>
  [[nodiscard]] Answer call(MessageType type, const Message& message, Deadline deadline) {
    std::vector<std::byte> frame;
    append_frame(frame, {0, static_cast<std::uint16_t>(type), version_}, message);
    return exchange(type, std::move(frame), deadline);
  }
  [[nodiscard]] Answer call_empty(MessageType type, Deadline deadline);
  // Sends without waiting for the reply, which is dropped when it comes; at once when the connection is free, else
  // with the message under way.
  template <class Message>
  void post(MessageType type, const Message& message) {
    std::vector<std::byte> frame;
    append_frame(frame, {0, static_cast<std::uint16_t>(type), version_}, message);
    send_without_waiting({type, std::move(frame)});
  }
  // Lets go of holds: at once when the connection is free, else with the message under way.
  void release(std::span<const Generation> generations) noexcept;
  // Tells the node what was read by way of its catalogue: now and then, and with the message under way.
  void touched(std::span<const Generation> generations) noexcept;
  // Takes late replies without waiting. True: the peer has said something.
  bool drain();
  // The peer has not closed it, and nothing went wrong.
  [[nodiscard]] bool alive() const;
  [[nodiscard]] bool of_this_process() const { return fork_count_ == fork_count(); }
  [[nodiscard]] const SessionInfo& info() const { return info_; }
  [[nodiscard]] Verified& verified() { return verified_; }

  // The arena's mapping, made on first use and kept; null with a reason when there is none to have.
  struct Arena {
    std::shared_ptr<Mapping> mapping;
    Reason reason = Reason::none;
  };
  [[nodiscard]] Arena arena(std::uint32_t index, Mapping::Access access, Deadline deadline);
  // The mapping of the node's catalogue; null when there is none to have.
  [[nodiscard]] std::shared_ptr<Mapping> catalogue();

 private:
  Reason greet(const PeerOptions& options, Deadline deadline, std::string& message);
  Reason take_welcome(const Answer& answer, const Digest& proof, std::string& message);
  Answer exchange(MessageType type, std::vector<std::byte> frame, Deadline deadline);
  Answer exchange_in_turn(MessageType type, std::vector<std::byte> frame, Deadline deadline);
  struct Post {
    MessageType type;
    std::vector<std::byte> frame;
  };
  void send_without_waiting(Post post);
  std::uint32_t enqueue(std::vector<std::byte> frame);
  enum class Heard : std::uint8_t { something, nothing, the_end };
  Heard listen(Deadline deadline);
  enum class Step : std::uint8_t { answered, waiting, broken };
  Step take_frames(std::uint32_t request_id, Answer& answer);
  bool take_frame(const Frame& frame, std::uint32_t request_id, Answer& answer);
  void take_late(MessageType type, const Frame& frame);
  [[nodiscard]] bool crowded() const;
  void make_room(Deadline deadline);
  void flush_queued();
  [[nodiscard]] Arena map(const ArenaRequest& request, Deadline deadline);
  void take_catalogue(Deadline deadline);
  void keep(const std::shared_ptr<Mapping>& mapping);
  void forget_arenas();
  void begin_heartbeat();
  void beat() noexcept;
  void end_turn(Turn::Guard turn);

  FrameStream stream_;
  SessionInfo info_;
  std::uint8_t version_ = wire_version_min;
  std::uint64_t fork_count_;
  Turn turn_;                       // guards stream_, last_request_id_, spin_, abandoned_
  std::uint32_t last_request_id_ = 0;
  Spin spin_{120};  // an answer often comes sooner than a sleeper wakes
  std::unordered_map<std::uint32_t, MessageType> abandoned_;  // requests nobody waits for any more
  std::atomic<bool> broken_{false};
  std::atomic<bool> spoken_{false};  // something was sent since the last heartbeat
  std::atomic<bool> heard_{false};   // something came since the last heartbeat
  std::uint32_t silent_beats_ = 0;   // of the heartbeat's thread
  std::string last_words_;          // of an ErrorReply
  Reason last_reason_ = Reason::unavailable;
  std::mutex queue_mutex_;          // of what waits for somebody's turn
  std::vector<Generation> releases_;
  std::vector<Generation> touched_;
  std::uint64_t touched_at_us_ = 0;  // when touched_ was sent last
  std::vector<Post> posts_;
  Verified verified_;
  std::mutex arenas_mutex_;
  std::vector<std::shared_ptr<Mapping>> readable_;
  std::vector<std::shared_ptr<Mapping>> writable_;
  std::shared_ptr<Mapping> catalogue_;
  std::unique_ptr<Keeper> keeper_;  // the last members: their threads end first
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace moonpool
