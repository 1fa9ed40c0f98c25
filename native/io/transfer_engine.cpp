#include "io/transfer_engine.hpp"

#include <stdexcept>

namespace moonpool {
namespace {

void check_remote(const TransferOperation& operation, std::size_t index) {
  const SliceRequest slice{operation.remote.token, operation.offset, operation.local.length, operation.write};
  const std::string which = "operation " + std::to_string(index) + ": ";
  if (!lies_inside(slice, operation.remote.byte_count)) {
    throw std::out_of_range(which + "offset " + std::to_string(operation.offset) + " and length " +
                            std::to_string(operation.local.length) + " reach past the remote region of " +
                            std::to_string(operation.remote.byte_count) + " bytes");
  }
  if (operation.write && !operation.remote.writable) {
    throw std::out_of_range(which + "the remote region may only be read");
  }
}

}  // namespace

// Our own regions that a call uses: they stay registered until it is over.
class TransferPeer::LocalUse {
 public:
  LocalUse(RegionTable& regions, std::span<const TransferOperation> operations) : regions_(regions) {
    std::vector<Piece> pieces;
    pieces.reserve(operations.size());
    for (const TransferOperation& operation : operations) { pieces.push_back(operation.local); }
    std::size_t outside = 0;
    std::optional<std::vector<Digest>> tokens = regions.enter_local(pieces, outside);
    if (!tokens) {
      throw std::out_of_range("operation " + std::to_string(outside) +
                              ": the local memory lies in no registered region");
    }
    tokens_ = *std::move(tokens);
  }
  ~LocalUse() { regions_.leave_local(tokens_); }
  LocalUse(const LocalUse&) = delete;
  LocalUse& operator=(const LocalUse&) = delete;
  LocalUse(LocalUse&&) = delete;
  LocalUse& operator=(LocalUse&&) = delete;
  [[nodiscard]] std::vector<Digest> release() { return std::exchange(tokens_, {}); }

 private:
  RegionTable& regions_;
  std::vector<Digest> tokens_;
};

TransferPeer::TransferPeer(std::shared_ptr<TransferCore> core, RailOptions options, std::size_t transfer_count_max)
    : core_(std::move(core)), rails_(std::move(options)), transfer_count_max_(transfer_count_max) {}

std::vector<RailOperation> TransferPeer::checked(std::span<const TransferOperation> operations, bool checksum) const {
  std::vector<RailOperation> checked;
  checked.reserve(operations.size());
  for (std::size_t index = 0; index < operations.size(); ++index) {
    const TransferOperation& operation = operations[index];
    check_remote(operation, index);
    checked.push_back({operation.write, checksum, operation.remote.token, operation.offset, operation.local});
  }
  return checked;
}

TransferReport TransferPeer::run(std::span<const TransferOperation> operations, bool checksum, RailOrder order) {
  const std::vector<RailOperation> all = checked(operations, checksum);
  const LocalUse use(core_->regions, operations);
  TransferReport report;
  const bool has_message = !order.message.empty();
  report.outcomes = rails_.run(all, order);
  if (has_message) {
    report.message_reason = report.outcomes.back().reason;
    report.outcomes.pop_back();
  }
  return report;
}

std::shared_ptr<Transfer> TransferPeer::submit(std::span<const TransferOperation> operations, bool checksum,
                                               RailOrder order) {
  std::vector<RailOperation> all = checked(operations, checksum);
  LocalUse use(core_->regions, operations);
  if (under_way_->fetch_add(1) >= transfer_count_max_) {
    under_way_->fetch_sub(1);
    throw std::length_error("too many transfers are under way to this peer");
  }
  auto transfer = std::make_shared<Transfer>(core_);
  transfer->local_ = use.release();
  const auto on_done = [transfer, counter = under_way_] {
    counter->fetch_sub(1);
    transfer->ended();
  };
  std::shared_ptr<RailTransfer> rail;
  try {
    rail = rails_.submit(std::move(all), std::move(order), on_done);
  } catch (...) {
    on_done();
    throw;
  }
  const std::lock_guard lock(transfer->mutex_);
  transfer->rail_ = std::move(rail);
  return transfer;
}

std::vector<const char*> TransferPeer::transport_names() const {
  std::vector<const char*> names;
  for (const auto& transport : transports_) { names.push_back(transport->name()); }
  names.push_back("tcp");
  return names;
}

bool Transfer::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool Transfer::wait(Deadline until) {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const std::uint64_t remaining_us = until.remaining_us();
    if (remaining_us == 0) { return false; }
    finished_.wait_for(lock, std::chrono::microseconds(remaining_us));
  }
  return true;
}

TransferReport Transfer::report() const {
  const std::lock_guard lock(mutex_);
  if (!done_ || !rail_) { throw std::logic_error("the transfer is not done"); }
  return {rail_->outcomes(), rail_->message_reason()};
}

void Transfer::watch(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (done_) {
    core_->queue.post(ticket);
  } else {
    tickets_.push_back(ticket);
  }
}

void Transfer::ended() {
  core_->regions.leave_local(local_);
  const std::lock_guard lock(mutex_);
  done_ = true;
  finished_.notify_all();
  for (const std::uint64_t ticket : tickets_) { core_->queue.post(ticket); }
  tickets_.clear();
}

TransferEngine::TransferEngine(TransferOptions options)
    : options_(std::move(options)), core_(std::make_shared<TransferCore>(options_.limits)) {}

TransferEngine::~TransferEngine() { server_.reset(); }

std::vector<std::string> TransferEngine::listen(std::vector<TcpAddress> addresses) {
  if (server_) { throw std::logic_error("the engine listens already"); }
  TransferServerOptions options;
  options.identity.addresses = std::move(addresses);
  options.identity.name = options_.name;
  options.identity.secret = options_.secret;
  options.identity.release = options_.release;
  options.limits = options_.limits.server;
  options.rails = options_.limits.rails;
  auto server = std::make_unique<TransferServer>(std::move(options), core_->regions, &core_->inbox);
  server->start();
  server_ = std::move(server);
  return server_->bound();
}

std::unique_ptr<TransferPeer> TransferEngine::peer(RailOptions options) {
  return std::make_unique<TransferPeer>(core_, std::move(options), options_.limits.transfer_count);
}

CounterMap TransferEngine::counters() {
  CounterMap all;
  if (server_) {
    all = server_->rail_counters();
    all.merge(server_->counters());
    all["rails"] = server_->rail_count();
  }
  all["regions"] = core_->regions.region_count();
  all["regions_leaving"] = core_->regions.leaving_count();
  return all;
}

void TransferEngine::close() {
  if (server_) { server_->stop(); }
  core_->inbox.close();
}

}  // namespace moonpool
