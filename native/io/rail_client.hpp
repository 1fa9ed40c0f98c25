// Moves bytes between memory of this process and registered memory of one peer, over a set of rails.
#pragma once

#include <functional>
#include <memory>

#include "core/siphash.hpp"
#include "core/turn_queue.hpp"
#include "io/clock.hpp"
#include "io/memory.hpp"

namespace moonpool {

// One way to the peer. Addresses are "host:port" or "[v6]:port"; local is "host" to bind to, or empty for any.
struct RailRoute {
  std::string peer;
  std::string local;
  std::uint64_t nominal_bytes_per_second = 0;  // of the link; 0: unknown
  std::uint32_t locality_permille = 1'000;     // factor on predicted times: 1000 near, more is farther
};

struct RailOptions {
  std::vector<RailRoute> routes;  // one rail each, all to the same server
  SipKey secret{};
  std::string tenant = "default";
  std::string name;
  std::uint64_t connect_timeout_ms = 2'000;
  std::uint64_t slice_bytes = 1U << 20U;      // longer operations are cut
  std::uint64_t inflight_bytes = 16U << 20U;  // of one rail: sent or asked for, and not acknowledged
  std::uint64_t stall_ms = 500;  // no progress on a rail for so long, and another goes on: it is given up
};

// One contiguous piece of work. The caller's memory is touched until the operation has an outcome, never after.
struct RailOperation {
  bool write = false;  // from local to the peer; else from the peer into local
  bool checksum = false;  // the CRC32C of the bytes is wanted; it is computed while they are hot
  Digest token;  // of the peer's region
  std::uint64_t offset = 0;
  Piece local;
};

// reason none: every byte is applied at its destination.
struct RailOutcome {
  Reason reason = Reason::none;
  bool may_be_applied_later = false;  // a write that failed while the peer may still have bytes of it under way
  std::uint32_t checksum = 0;  // where it was asked for and reason is none
};

struct RailOrder {
  Deadline deadline = Deadline::after_ms(0);
  Priority priority = Priority::normal;
  std::string message;  // delivered to the peer when all operations are applied; empty: none
};

// A submitted batch. Any thread.
class RailTransfer {
 public:
  RailTransfer() = default;
  virtual ~RailTransfer() = default;
  RailTransfer(const RailTransfer&) = delete;
  RailTransfer& operator=(const RailTransfer&) = delete;
  RailTransfer(RailTransfer&&) = delete;
  RailTransfer& operator=(RailTransfer&&) = delete;

  [[nodiscard]] virtual bool done() const = 0;
  // False: not done by then, and it goes on.
  [[nodiscard]] virtual bool wait(Deadline until) = 0;
  // One per operation, in their order; only when done.
  [[nodiscard]] virtual const std::vector<RailOutcome>& outcomes() const = 0;
  [[nodiscard]] virtual Reason message_reason() const = 0;
};

struct RailStatus {
  std::string peer;
  std::string local;
  const char* state = "";  // constant text: connecting, up, paused
  std::uint64_t inflight_bytes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t failure_count = 0;
  double bytes_per_second = 0;  // predicted
};

// Any thread may call anything; several may run at a time. Nothing here throws for what a peer does. A forked child
// must not use it (std::logic_error).
class RailClient {
 public:
  explicit RailClient(RailOptions options);  // throws std::invalid_argument for an address that is none
  ~RailClient();
  RailClient(const RailClient&) = delete;
  RailClient& operator=(const RailClient&) = delete;
  RailClient(RailClient&&) = delete;
  RailClient& operator=(RailClient&&) = delete;

  struct Connected {
    Reason reason = Reason::none;
    std::string message;
  };
  // At least one rail is up. Rails also connect by themselves when there is work, and after a loss.
  [[nodiscard]] Connected connect(Deadline deadline);
  // The calling thread does its own sending and receiving. Every operation has its outcome on return, which is at the
  // deadline at the latest; where there is a message, one more outcome is the message's.
  [[nodiscard]] std::vector<RailOutcome> run(std::span<const RailOperation> operations, const RailOrder& order);
  // Returns at once. A background thread works; on_done is called once, from any thread, and must not block.
  [[nodiscard]] std::shared_ptr<RailTransfer> submit(std::vector<RailOperation> operations, RailOrder order,
                                                     std::function<void()> on_done);
  // The peer's answer to nothing: none when it is there.
  [[nodiscard]] Reason probe(Deadline deadline);
  [[nodiscard]] std::vector<RailStatus> status() const;
  // Work under way fails (reason unavailable).
  void close();

 private:
  class Driver;
  std::shared_ptr<Driver> driver_;
};

}  // namespace moonpool
