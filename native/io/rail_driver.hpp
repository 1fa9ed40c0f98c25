// Drives the rails to one peer for everybody who uses them. One thread at a time leads: it pumps all batches, its own
// and others'; the rest wait for their batch, or for the lead.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "io/rail_link.hpp"
#include "io/spin.hpp"

namespace moonpool {

class RailClient::Driver {
 public:
  explicit Driver(RailOptions options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  Driver(Driver&&) = delete;
  Driver& operator=(Driver&&) = delete;

  // Throw std::logic_error in a forked child.
  void run(const std::shared_ptr<RailBatch>& batch);     // until it is done
  void submit(const std::shared_ptr<RailBatch>& batch);  // the background thread leads, unless somebody does
  [[nodiscard]] Connected connect(Deadline deadline);
  [[nodiscard]] std::vector<RailStatus> status() const;
  void close();

 private:
  using Batch = std::shared_ptr<RailBatch>;
  struct Connection {  // one that is up, or lost and to be dropped by the peer
    ConnectionId rail = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t asked_us = 0;  // when the peer was asked to drop it; 0: not yet
  };
  struct Published {  // of a rail, for status()
    std::atomic<RailState> state{RailState::paused};
    std::atomic<std::uint64_t> bytes_per_second{0};
  };
  void check_process() const;
  void enqueue(const Batch& batch);  // with the mutex
  void lead(const RailBatch* own);
  void background();
  void take_incoming(std::uint64_t now_us);
  void plan_next(const Batch& batch, std::uint64_t now_us);
  [[nodiscard]] bool step(std::uint64_t now_us);
  void wait_for_something();
  void connect_links(std::uint64_t now_us);
  void drop_stalled(std::uint64_t now_us);
  void expire(std::uint64_t now_us);
  void give_up_if_denied();
  void give_up_all(Reason reason);
  // Nothing of the batch is under way any more.
  void withdraw(RailBatch& batch, std::uint64_t now_us);
  void connected(RailIndex rail, std::uint64_t now_us);
  void lost(RailIndex rail, std::uint64_t now_us);
  void ask_to_drop(std::uint64_t now_us);
  void assign(std::uint64_t now_us);
  [[nodiscard]] bool advance(RailIndex rail, std::uint64_t now_us);
  void settle_jobs(std::uint64_t now_us);
  void settle_transfers(std::uint64_t now_us);
  void finish_complete();

  RailOptions options_;
  std::uint64_t fork_count_;

  // Of who leads.
  TransferPlan plan_;
  std::vector<std::unique_ptr<RailLink>> links_;  // by rail of the plan
  std::vector<Batch> active_;                     // in the order in which they came
  std::unordered_map<TransferId, Batch> transfers_;
  std::unordered_map<std::uint64_t, Connection> connections_;  // by the name that the plan knows
  std::uint64_t last_connection_ = 0;
  std::vector<RailLink::Ended> ended_;
  std::size_t next_asked_ = 0;
  Spin spin_{150};

  std::vector<Published> published_;
  std::atomic<bool> has_incoming_{false};
  std::atomic<bool> forgetting_failures_{false};
  std::atomic<bool> closed_{false};
  std::atomic<std::size_t> unfinished_count_{0};
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Batch> incoming_;
  bool led_ = false;
  bool polling_ = false;  // the leader sleeps, and wake_ wakes it
  std::atomic<std::size_t> follower_count_{0};
  std::string last_message_;
  std::thread background_;
  Descriptor wake_;
};

}  // namespace moonpool
