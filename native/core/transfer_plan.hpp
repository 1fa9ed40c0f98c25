// Which slice of which transfer goes over which rail, and when a transfer is done. Pure: whoever drives the rails tells
// what happened and when, and asks what to do next.
//
// A driver's turn:
//   for (rail : rails_to_connect(now)) connecting(rail), and later connected(rail, name) or failed(rail)
//   while (slice = next(now)) put it on slice->rail
//   as bytes move: progressed(rail); in the end finished(slice), or refused(slice, reason)
//   a connection is lost: failed(rail); for (connection : drops_owed()) say `cancel` on a rail that is connected, and
//     when the peer has acknowledged it, or its process is known to have ended: dropped(connection)
//   at wake_at_us() at the latest: for (rail : stalled(now)) close it, and failed(rail);
//     for (slice : expire(now)) touch its memory no more
//   take_done() has what ended.
// Applied means that nothing can be applied later either: a write that went out again, because the rail that it was on
// was lost, counts only when that connection is known to be dropped by the peer.
#pragma once

#include <utility>

#include "core/indexed_heap.hpp"
#include "core/linked_slots.hpp"
#include "core/rail_book.hpp"
#include "core/slice_plan.hpp"
#include "core/turn_queue.hpp"

namespace moonpool {

using TransferId = std::uint64_t;
using SliceId = std::uint64_t;

struct PlanLimits {
  RailBookLimits rails;
  SliceLimits slices;
  TurnLimits turns;
  std::uint32_t attempts_max = 4;  // of one slice
  std::uint32_t connect_attempts_max = 3;  // of every rail in a row, none being connected: what waits is unavailable
  std::uint32_t transfer_count_max = 4096;
  std::uint32_t operation_count_max = 1U << 20U;  // of one transfer
  std::uint32_t drop_count_max = 256;  // connections that may owe a drop; with more, nothing is sent
};

struct PlannedOperation {
  std::uint64_t length = 0;
  bool write = false;
};

struct PlannedTransfer {
  Priority priority = Priority::normal;
  std::uint64_t deadline_us = 0;
};

// A part of one operation, to be moved over one rail now.
struct PlannedSlice {
  SliceId slice = 0;
  TransferId transfer = 0;
  RailIndex rail = 0;
  std::uint32_t operation = 0;
  std::uint64_t offset = 0;  // inside the operation
  std::uint64_t length = 0;
  std::uint32_t attempt = 1;
  bool write = false;
};

struct OperationResult {
  Reason reason = Reason::none;  // none: applied, whole
  bool may_be_applied_later = false;  // a write that failed, and the peer may still have bytes of it under way
};

// A part of an operation that is not known to be applied.
struct UnappliedPart {
  std::uint32_t operation = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
inline constexpr std::size_t unapplied_count_max = 64;  // of one result; there may be more

struct TransferResult {
  TransferId transfer = 0;
  std::vector<OperationResult> operations;
  std::vector<UnappliedPart> unapplied;  // of the operations that failed, in no order
};

class TransferPlan {
 public:
  explicit TransferPlan(const PlanLimits& limits = {});

  RailIndex add_rail(const RailTraits& traits);
  [[nodiscard]] const RailBook& rails() const { return rails_; }
  // Paused rails whose time has come, while there is work or a drop is owed.
  [[nodiscard]] std::vector<RailIndex> rails_to_connect(std::uint64_t now_us) const;
  void connecting(RailIndex rail) { rails_.connecting(rail); }
  // connection: not 0, and not that of any other connection; what the `cancel` will name.
  void connected(RailIndex rail, std::uint64_t connection, std::uint64_t now_us);
  // Not connected (any more): the driver has closed its socket. What was under way on it goes elsewhere.
  void failed(RailIndex rail, std::uint64_t now_us);
  // Who asks for a connection by name gets a try at once.
  void forget_failures() { rails_.forget_failures(); }
  // Lost connections on which writes may be under way.
  [[nodiscard]] const std::vector<std::uint64_t>& drops_owed() const { return drops_owed_; }
  void dropped(std::uint64_t connection);

  // nullopt: too many transfers or operations. Operations of no length are done at once, and all are at once
  // unavailable while no rail is to be had.
  [[nodiscard]] std::optional<TransferId> add(std::span<const PlannedOperation> operations, const PlannedTransfer& how,
                                              std::uint64_t now_us);
  // It ends now; its operations that are not done fail for this reason. What is returned is under way: its memory is
  // not to be touched any more (a rail in the middle of sending it must be closed), and each still ends by finished(),
  // refused() or the failure of its rail.
  [[nodiscard]] std::vector<PlannedSlice> give_up(TransferId transfer, Reason reason);
  // The same (timed_out) for all whose deadline has passed.
  [[nodiscard]] std::vector<PlannedSlice> expire(std::uint64_t now_us);

  // nullopt: nothing to send before something ends, or wake_at_us().
  [[nodiscard]] std::optional<PlannedSlice> next(std::uint64_t now_us);
  void progressed(RailIndex rail, std::uint64_t now_us) { rails_.progressed(rail, now_us); }
  // Applied. A slice that is not under way (any more) is ignored, here and below.
  void finished(SliceId slice, std::uint64_t now_us);
  // The peer said no: the operation fails for this reason and is tried nowhere else. The rail is healthy.
  void refused(SliceId slice, Reason reason, std::uint64_t now_us);

  // The slice was not sent at all: it waits again.
  void withdrawn(SliceId slice);

  // Rails on which nothing has moved for too long, or with a slice that another rail would long have moved.
  [[nodiscard]] std::vector<RailIndex> stalled(std::uint64_t now_us);
  // When rails_to_connect(), stalled() or expire() may next have something; never_us for never.
  [[nodiscard]] std::uint64_t wake_at_us() const;
  [[nodiscard]] std::size_t transfer_count() const { return transfers_.count(); }
  [[nodiscard]] std::vector<TransferResult> take_done() { return std::exchange(done_, {}); }

  [[nodiscard]] std::string check_integrity() const;

 private:
  struct Part {  // of an operation, to be sent again
    std::uint32_t operation = 0;
    std::uint32_t attempt = 1;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  struct Operation {
    std::uint64_t length = 0;
    std::uint64_t applied_bytes = 0;
    std::uint32_t inflight_count = 0;  // slices
    bool write = false;
    Reason reason = Reason::none;
  };
  struct Stale {  // a write of this operation was lost with this connection
    std::uint64_t connection = 0;
    std::uint32_t operation = 0;
    friend bool operator==(const Stale&, const Stale&) = default;
  };
  struct Transfer {
    TransferId id = 0;  // 0: none
    Priority priority = Priority::normal;
    std::uint64_t pending_bytes = 0;  // neither under way, applied nor given up
    std::vector<Operation> operations;
    std::size_t open_count = 0;  // operations without an outcome
    std::size_t cut_operation = 0;  // where the next part begins that was never sent
    std::uint64_t cut_offset = 0;
    std::vector<Part> again;
    std::vector<Stale> stale;
    std::vector<UnappliedPart> unapplied;
    std::uint64_t whole_bytes = 0;  // not 0: all of it is to go over one rail
    std::optional<RailIndex> home;  // that rail, once chosen
  };
  struct Sent {
    SliceId id = 0;  // 0: none
    Slot transfer = no_slot;  // no_slot: given up
    Part part;
    RailIndex rail = 0;
    bool write = false;
    std::uint64_t started_us = 0;
    std::uint64_t predicted_us = 0;
    Link link;
  };
  struct Choice {
    RailIndex rail = 0;
    std::uint64_t length = 0;
    std::uint64_t predicted_us = never_us;
  };
  struct Wanted {  // what a rail is looked for
    Priority priority = Priority::normal;
    bool promoted = false;
    std::uint64_t remaining = 0;  // of the part
    std::uint64_t whole_bytes = 0;  // of such a transfer
  };

  [[nodiscard]] Slot slot_of(TransferId transfer) const;
  [[nodiscard]] Slot slot_of_slice(SliceId slice) const;
  [[nodiscard]] Part next_part(const Transfer& transfer) const;
  void skip_settled(Transfer& transfer) const;
  [[nodiscard]] PlannedSlice send(Slot transfer, const Choice& choice, std::uint64_t now_us);
  [[nodiscard]] std::optional<Choice> choose(Slot transfer, bool promoted, std::uint64_t now_us);
  [[nodiscard]] std::optional<Choice> choose_probe(const Wanted& wanted, std::uint64_t now_us) const;
  [[nodiscard]] std::optional<Choice> choose_soonest(const Wanted& wanted, std::uint64_t now_us) const;
  [[nodiscard]] bool has_room(RailIndex rail, const Wanted& wanted, std::uint64_t length, std::uint64_t now_us) const;
  [[nodiscard]] std::uint64_t backlog_us(Priority priority) const;
  [[nodiscard]] PlannedSlice described(const Sent& sent, TransferId transfer) const;
  [[nodiscard]] bool is_late(RailIndex rail, std::uint64_t now_us) const;
  void take_part(Transfer& transfer, std::uint64_t length);
  void end_slice(Slot slot);
  void lose_slice(Slot slot);
  void send_again(Slot transfer, const Part& part);
  void note_unapplied(Transfer& transfer, const Part& part) const;
  void fail_operation(Slot transfer, std::uint32_t operation, Reason reason);
  void settle(Slot transfer, std::uint32_t operation);
  void finish_if_complete(Slot transfer);
  [[nodiscard]] std::vector<PlannedSlice> end(Slot transfer, Reason reason);
  [[nodiscard]] bool is_stale(const Transfer& transfer, std::uint32_t operation) const;
  [[nodiscard]] std::string check_transfer(Slot slot) const;
  [[nodiscard]] std::string check_rail(RailIndex rail) const;

  PlanLimits limits_;
  RailBook rails_;
  TurnQueue turns_;
  SlotPool<Transfer> transfers_;
  SlotPool<Sent> sent_;
  std::vector<Slot> sent_on_;  // by rail: its slices, the newest first
  IndexedHeap deadlines_;  // of transfers
  std::array<std::uint64_t, priority_count> pending_bytes_{};
  std::vector<std::uint64_t> drops_owed_;
  std::vector<TransferResult> done_;
  std::uint64_t last_serial_ = 0;
  std::uint64_t latency_us_ = 0;  // when latency-critical work was last sent; 0: never
  std::uint64_t looked_us_ = 0;  // when stalled() last looked while something was under way
  std::uint64_t excused_us_ = 0;  // before that moment we were not looking
  std::uint64_t look_at_us_ = never_us;
};

}  // namespace moonpool
