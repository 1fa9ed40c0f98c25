// A batch of operations on its way: the memory of each, and what became of it. The planner cuts it and says when it has
// ended.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "core/rail_frame.hpp"
#include "core/transfer_plan.hpp"
#include "io/rail_client.hpp"

namespace moonpool {

class RailBatch;

// One request on a rail: a slice of an operation, or something that carries none.
struct RailJob {
  RailVerb verb = RailVerb::probe;
  bool checksum = false;
  std::uint32_t operation = 0;
  SliceId slice = 0;  // the planner's name of it; of a cancel: that of the connection that it is about
  RailBatch* batch = nullptr;  // null: nobody wants it any more; what comes for it is skipped
  Digest token;
  std::uint64_t offset = 0;  // in the peer's region; of a cancel: the rail that it is about
  std::uint64_t begin = 0;  // in the operation
  ConstBytes source;  // of writes and messages
  MutableBytes target;  // of reads
  std::uint64_t length = 0;
  std::uint32_t sum = 0;  // CRC32C of what moved so far
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
  // What is to be planned next: the operations, and when they are applied the last. Nothing when it is complete.
  [[nodiscard]] std::vector<PlannedOperation> planned() const;
  // The planner's name for that.
  void set_transfer(TransferId transfer) { transfer_ = transfer; }
  [[nodiscard]] TransferId transfer() const { return transfer_; }
  [[nodiscard]] RailJob job(const PlannedSlice& slice);
  void applied(const RailJob& job);
  // What was planned has ended.
  void settle(const TransferResult& result);
  // It was not even planned.
  void give_up(Reason reason);
  [[nodiscard]] bool complete() const { return phase_ == Phase::complete; }
  // Once, when complete: waiters and on_done learn of it.
  void finish();

 private:
  enum class Phase : std::uint8_t { operations, last, complete };
  void enter_last(Reason reason);
  [[nodiscard]] RailJob last_job() const;

  std::vector<RailOperation> operations_;
  RailOrder order_;
  std::optional<RailVerb> last_;
  Digest last_identity_;
  Reason last_reason_ = Reason::none;
  std::function<void()> on_done_;
  std::vector<RailOutcome> outcomes_;
  Phase phase_ = Phase::operations;
  TransferId transfer_ = 0;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<bool> done_{false};
};

}  // namespace moonpool
