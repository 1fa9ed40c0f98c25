#include "io/transfer_server.hpp"

#include <stdexcept>

#include "io/clock.hpp"
#include "io/handshake.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t tick_ms = 100;

}  // namespace

TransferService::TransferService(EventLoop& loop, const TransferServerOptions& options, RailServer& rails)
    : loop_(loop), rails_(rails), server_(loop, options.identity, options.limits, *this) {}

void TransferService::start() {
  server_.listen();
  loop_.set_tick(tick_ms, [this] { server_.tick(boot_ms()); });
}

void TransferService::stop() { server_.close_all(); }

void TransferService::admit(Connection& connection) {
  if (connection.principal.role != Role::rail) {
    throw Refusal{Reason::access_denied, "refused_role", "a transfer engine takes rails only"};
  }
  if (!rails_.has_room()) { throw Refusal{Reason::connection_limit, "refused_rail_count", "too many rails"}; }
}

Welcome TransferService::welcome(const Connection& /*connection*/) { return {}; }

void TransferService::admitted(Connection& /*connection*/) {}

void TransferService::take_rail(ProvenRail rail) { rails_.take(std::move(rail)); }

void TransferService::serve(Connection& /*connection*/, const Frame& /*frame*/) {
  throw Refusal{Reason::bad_request, "malformed_message", "a transfer engine answers no messages"};
}

bool TransferService::lost(Connection& /*connection*/) { return false; }

void TransferService::gone(ConnectionId /*connection*/) {}

TransferServer::TransferServer(TransferServerOptions options, RegionAuthority& authority, RailInbox* inbox)
    : options_(std::move(options)), rails_(options_.rails, authority, inbox) {
  options_.identity.incarnation = random_u64();
}

TransferServer::~TransferServer() {
  if (of_this_process()) {
    stop();
    discard();
    return;
  }
  abandon();
  rails_.abandon();
}

void TransferServer::start() {
  const std::lock_guard lock(mutex());
  if (started()) { throw std::logic_error("it listens already"); }
  auto service = std::make_unique<TransferService>(loop(), options_, rails_);
  rails_.start();
  try {
    run(std::move(service));
  } catch (...) {
    rails_.stop();
    throw;
  }
}

void TransferServer::stop() {
  const std::lock_guard lock(mutex());
  if (!running()) { return; }
  end();
  rails_.stop();
}

std::vector<std::string> TransferServer::bound() {
  const std::lock_guard lock(mutex());
  return started() ? service().bound() : std::vector<std::string>{};
}

}  // namespace moonpool
