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
    : core_(std::move(core)),
      ways_(std::make_shared<Ways>(std::move(options))),
      transfer_count_max_(transfer_count_max) {}

std::vector<RailOperation> TransferPeer::checked(std::span<const TransferOperation> operations, bool checksum) {
  std::vector<RailOperation> checked;
  checked.reserve(operations.size());
  for (std::size_t index = 0; index < operations.size(); ++index) {
    const TransferOperation& operation = operations[index];
    check_remote(operation, index);
    checked.push_back({operation.write, checksum, operation.remote.token, operation.offset, operation.local});
  }
  return checked;
}

// Whatever a transport reaches; the message is taken out of the order when something has failed.
TransferPeer::Moved TransferPeer::move(Ways& ways, std::vector<RailOperation> operations, RailOrder& order,
                                       Reason& message_reason) {
  Moved moved;
  moved.outcomes.resize(operations.size());
  Reason failure = Reason::none;
  for (std::size_t index = 0; index < operations.size(); ++index) {
    std::optional<RailOutcome> outcome;
    for (const auto& transport : ways.transports) {
      outcome = transport->move(operations[index], order.deadline);
      if (outcome) { break; }
    }
    if (outcome) {
      moved.outcomes[index] = *outcome;
      if (failure == Reason::none) { failure = outcome->reason; }
    } else {
      moved.rest.push_back(operations[index]);
      moved.rest_index.push_back(index);
    }
  }
  if (failure != Reason::none && !order.message.empty()) {
    message_reason = failure;
    order.message.clear();
  }
  return moved;
}

TransferReport TransferPeer::run(std::span<const TransferOperation> operations, bool checksum, RailOrder order) {
  std::vector<RailOperation> all = checked(operations, checksum);
  const LocalUse use(core_->regions, operations);
  TransferReport report;
  Moved moved;
  if (ways_->transports.empty()) {
    moved.rest = std::move(all);
  } else {
    moved = move(*ways_, std::move(all), order, report.message_reason);
    report.outcomes = std::move(moved.outcomes);
    if (moved.rest.empty() && order.message.empty()) { return report; }
  }
  std::vector<RailOutcome> outcomes = ways_->rails.run(moved.rest, order);
  if (!order.message.empty()) {
    report.message_reason = outcomes.back().reason;
    outcomes.pop_back();
  }
  if (ways_->transports.empty()) {
    report.outcomes = std::move(outcomes);
  } else {
    for (std::size_t index = 0; index < outcomes.size(); ++index) {
      report.outcomes[moved.rest_index[index]] = outcomes[index];
    }
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
  auto transfer = std::make_shared<Transfer>(core_, under_way_);
  transfer->local_ = use.release();
  try {
    if (ways_->transports.empty()) {
      start(*ways_, transfer, std::move(all), std::move(order));
    } else {  // copying is work: not in the caller's thread
      core_->mover.post([ways = ways_, transfer, all = std::move(all), order = std::move(order)] {
        start(*ways, transfer, all, order);
      });
    }
  } catch (...) {
    transfer->rails_ended();
    transfer->started(nullptr);
    throw;
  }
  return transfer;
}

void TransferPeer::start(Ways& ways, const std::shared_ptr<Transfer>& transfer, std::vector<RailOperation> operations,
                         RailOrder order) {
  Moved moved;
  TransferReport report;
  if (ways.transports.empty()) {
    for (std::size_t index = 0; index < operations.size(); ++index) { moved.rest_index.push_back(index); }
    moved.outcomes.resize(operations.size());
    moved.rest = std::move(operations);
  } else {
    moved = move(ways, std::move(operations), order, report.message_reason);
  }
  report.outcomes = std::move(moved.outcomes);
  transfer->report_ = std::move(report);
  transfer->rest_index_ = std::move(moved.rest_index);
  std::shared_ptr<RailTransfer> rail;
  if (moved.rest.empty() && order.message.empty()) {
    transfer->rails_ended();
  } else {
    rail = ways.rails.submit(std::move(moved.rest), std::move(order), [transfer] { transfer->rails_ended(); });
  }
  transfer->started(std::move(rail));
}

std::vector<const char*> TransferPeer::transport_names() const {
  std::vector<const char*> names;
  for (const auto& transport : ways_->transports) { names.push_back(transport->name()); }
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
  if (!done_) { throw std::logic_error("the transfer is not done"); }
  TransferReport report = report_;
  if (rail_) {
    const std::vector<RailOutcome>& outcomes = rail_->outcomes();
    for (std::size_t index = 0; index < outcomes.size(); ++index) {
      report.outcomes[rest_index_[index]] = outcomes[index];
    }
    if (report.message_reason == Reason::none) { report.message_reason = rail_->message_reason(); }
  }
  return report;
}

void Transfer::watch(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (done_) {
    core_->queue.post(ticket);
  } else {
    tickets_.push_back(ticket);
  }
}

void Transfer::rails_ended() {
  const std::lock_guard lock(mutex_);
  rails_ended_ = true;
  end_if_over();
}

void Transfer::started(std::shared_ptr<RailTransfer> rail) {
  const std::lock_guard lock(mutex_);
  rail_ = std::move(rail);
  started_ = true;
  end_if_over();
}

// The rails may be faster than whoever started them.
void Transfer::end_if_over() {
  if (!started_ || !rails_ended_) { return; }
  core_->regions.leave_local(local_);
  under_way_->fetch_sub(1);
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
