// What a program transfers with: its regions, the server through which peers reach them, and the peers that it reaches.
#pragma once

#include <memory>

#include "io/region_table.hpp"
#include "io/transfer_inbox.hpp"
#include "io/transfer_mover.hpp"
#include "io/transfer_server.hpp"
#include "io/transfer_transport.hpp"

namespace moonpool {

struct TransferLimits {
  std::size_t region_count = 4'096;
  std::size_t message_count = 1'024;
  std::size_t transfer_count = 4'096;  // submitted and not done, of one peer
  RailLimits rails;
  ServerLimits server;
};

struct TransferOptions {
  std::string name;
  SipKey secret{};
  std::string release;
  TransferLimits limits;
};

// What a peer says of its region, to be checked before anything moves.
struct RemoteRegion {
  Digest token;
  std::uint64_t byte_count = 0;
  bool writable = false;
};

struct TransferOperation {
  bool write = false;
  RemoteRegion remote;
  std::uint64_t offset = 0;
  Piece local;
};

class Transfer;

// The parts that peers and transfers share; they may outlive the engine's own object.
struct TransferCore {
  explicit TransferCore(const TransferLimits& limits)
      : regions(limits.region_count), inbox(limits.message_count, queue) {}
  RegionTable regions;
  CompletionQueue queue;
  TransferInbox inbox;
  TransferMover mover;  // the last member: its tasks use the others
};

struct TransferReport {
  std::vector<RailOutcome> outcomes;  // one per operation
  Reason message_reason = Reason::none;
};

class TransferPeer {
 public:
  TransferPeer(std::shared_ptr<TransferCore> core, RailOptions options, std::size_t transfer_count_max);

  [[nodiscard]] RailClient& rails() { return ways_->rails; }
  // In the calling thread. Both throw std::out_of_range naming the operation whose memory, here or there, lies outside
  // its region, before anything moves.
  [[nodiscard]] TransferReport run(std::span<const TransferOperation> operations, bool checksum, RailOrder order);
  // Throws std::length_error when too many are under way.
  [[nodiscard]] std::shared_ptr<Transfer> submit(std::span<const TransferOperation> operations, bool checksum,
                                                 RailOrder order);
  // Asked in this order before the rails. Before the first transfer only.
  void add_transport(std::unique_ptr<PeerTransport> transport) { ways_->transports.push_back(std::move(transport)); }
  [[nodiscard]] std::vector<const char*> transport_names() const;
  void close() { ways_->rails.close(); }

 private:
  class LocalUse;
  // Tasks of the mover hold it too.
  struct Ways {
    explicit Ways(RailOptions options) : rails(std::move(options)) {}
    RailClient rails;
    std::vector<std::unique_ptr<PeerTransport>> transports;
  };
  // What transports have moved, and what is left for the rails.
  struct Moved {
    std::vector<RailOutcome> outcomes;
    std::vector<RailOperation> rest;
    std::vector<std::size_t> rest_index;
  };
  [[nodiscard]] static Moved move(Ways& ways, std::vector<RailOperation> operations, RailOrder& order,
                                  Reason& message_reason);
  static void start(Ways& ways, const std::shared_ptr<Transfer>& transfer, std::vector<RailOperation> operations,
                    RailOrder order);
  [[nodiscard]] static std::vector<RailOperation> checked(std::span<const TransferOperation> operations, bool checksum);

  std::shared_ptr<TransferCore> core_;
  std::shared_ptr<Ways> ways_;
  std::size_t transfer_count_max_;
  std::shared_ptr<std::atomic<std::size_t>> under_way_ = std::make_shared<std::atomic<std::size_t>>(0);
};

// A submitted batch. Any thread.
class Transfer {
 public:
  Transfer(std::shared_ptr<TransferCore> core, std::shared_ptr<std::atomic<std::size_t>> under_way)
      : core_(std::move(core)), under_way_(std::move(under_way)) {}
  [[nodiscard]] bool done() const;
  // False: not done by then, and it goes on.
  [[nodiscard]] bool wait(Deadline until);
  // Only when done.
  [[nodiscard]] TransferReport report() const;
  // The ticket is posted to the completion queue when it is done.
  void watch(std::uint64_t ticket);

 private:
  friend class TransferPeer;
  void rails_ended();
  void started(std::shared_ptr<RailTransfer> rail);
  void end_if_over();  // with the mutex

  std::shared_ptr<TransferCore> core_;
  std::shared_ptr<std::atomic<std::size_t>> under_way_;
  // Written before it starts, read when it is done.
  std::vector<Digest> local_;  // regions of ours that it uses
  TransferReport report_;  // of what transports have moved
  std::vector<std::size_t> rest_index_;  // operations that the rails move
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable finished_;
  std::shared_ptr<RailTransfer> rail_;  // those
  std::vector<std::uint64_t> tickets_;
  bool started_ = false;
  bool rails_ended_ = false;
  bool done_ = false;
};

class TransferEngine {
 public:
  explicit TransferEngine(TransferOptions options);
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  TransferEngine(TransferEngine&&) = delete;
  TransferEngine& operator=(TransferEngine&&) = delete;

  [[nodiscard]] RegionTable& regions() { return core_->regions; }
  [[nodiscard]] CompletionQueue& queue() { return core_->queue; }
  [[nodiscard]] TransferInbox& inbox() { return core_->inbox; }
  // Once. Where it listens, in the order of the addresses. Throws std::system_error.
  std::vector<std::string> listen(std::vector<TcpAddress> addresses);
  [[nodiscard]] std::unique_ptr<TransferPeer> peer(RailOptions options);
  [[nodiscard]] CounterMap counters();
  // Peers reach nothing any more; nobody is inside any region.
  void close();

 private:
  TransferOptions options_;
  std::shared_ptr<TransferCore> core_;
  std::unique_ptr<TransferServer> server_;
};

}  // namespace moonpool
