// A batch of operations on its way: what is still to be cut, what is out, and what became of each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "core/rail_frame.hpp"
#include "io/rail_client.hpp"

namespace moonpool {

class RailBatch;

// One request on a rail: a slice of an operation, or something that carries none.
struct RailJob {
  RailVerb verb = RailVerb::probe;
  bool checksum = false;
  std::uint32_t operation = 0;
  RailBatch* batch = nullptr;  // null: nobody wants it any more; what comes for it is skipped
  Digest token;
  std::uint64_t offset = 0;    // in the peer's region; of a cancel: the rail that it is about
  std::uint64_t begin = 0;     // in the operation
  ConstBytes source;           // of writes and messages
  MutableBytes target;         // of reads
  std::uint64_t length = 0;
  std::uint32_t sum = 0;       // CRC32C of what moved so far
};

// The driver's alone, but for what RailTransfer offers.
class RailBatch final : public RailTransfer {
 public:
  // last: a probe or message that goes out when all operations are applied; nullopt: nothing.
  RailBatch(std::vector<RailOperation> operations, RailOrder order, std::optional<RailVerb> last,
            std::function<void()> on_done);

  [[nodiscard]] bool done() const override { return done_.load(std::memory_order_acquire); }
  [[nodiscard]] bool wait(Deadline until) override;
  [[nodiscard]] const std::vector<RailOutcome>& outcomes() const override { return outcomes_; }
  [[nodiscard]] Reason message_reason() const override { return last_reason_; }

  [[nodiscard]] const RailOrder& order() const { return order_; }
  // Something can go out now.
  [[nodiscard]] bool has_next() const;
  [[nodiscard]] std::uint64_t next_bytes(std::uint64_t slice_bytes) const;
  [[nodiscard]] RailJob next(std::uint64_t slice_bytes);
  // The rail did not bring it to an end: it goes out again.
  void put_back(const RailJob& job);
  // reason none: applied.
  void ended(const RailJob& job, Reason reason, std::uint64_t slice_bytes);
  void may_be_applied_later(const RailJob& job);
  // What has no outcome yet gets this one.
  void give_up(Reason reason);
  [[nodiscard]] bool complete() const { return open_count_ == 0 && !last_; }
  // Once, when complete: waiters and on_done learn of it.
  void finish();

 private:
  [[nodiscard]] RailJob cut(std::uint64_t slice_bytes);
  void skip_empty();
  void settle(std::size_t operation, std::uint64_t byte_count);
  void drop_rest(std::size_t operation);
  void note_sum(const RailJob& job, std::uint64_t slice_bytes);

  std::vector<RailOperation> operations_;
  RailOrder order_;
  std::optional<RailVerb> last_;
  bool last_is_out_ = false;
  Digest last_identity_;
  Reason last_reason_ = Reason::none;
  std::function<void()> on_done_;
  std::vector<RailOutcome> outcomes_;
  std::vector<std::uint64_t> left_bytes_;               // by operation: neither applied nor given up
  std::vector<std::vector<std::uint32_t>> slice_sums_;  // by operation, where several slices are summed
  std::size_t open_count_ = 0;                          // operations without an outcome
  std::size_t cut_operation_ = 0;
  std::uint64_t cut_bytes_ = 0;
  std::deque<RailJob> again_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<bool> done_{false};
};

}  // namespace moonpool
