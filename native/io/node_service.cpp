#include "io/node_service.hpp"

#include <unistd.h>

#include <algorithm>

#include "io/authorize.hpp"
#include "io/clock.hpp"
#include "io/handshake.hpp"
#include "io/serve.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t tick_ms = 100;
constexpr std::uint32_t expire_count_max = 4'096;
constexpr std::uint64_t index_entries_per_object = 2;  // a digest and, where tagged, a block

constexpr std::string_view default_tenant = "default";
constexpr std::uint64_t catalogue_bytes_per_object = 4'096;  // what is smaller in great number is not all listed

std::string_view home_tenant_of(const NodeOptions& options) {
  return options.tenants.empty() ? default_tenant : std::string_view(options.tenants.front());
}

std::uint64_t listed_object_count(const NodeOptions& options) {
  return std::min(options.limits.table.object_count_max, options.segment_bytes / catalogue_bytes_per_object);
}

}  // namespace

NodeService::NodeService(EventLoop& loop, const NodeOptions& options, Segment& segment,
                         const std::atomic<std::uint64_t>& populated_bytes)
    : loop_(loop),
      options_(options),
      segment_(segment),
      populated_bytes_(populated_bytes),
      table_(segment.arena_bytes(), options.limits.table),
      catalogue_(options.identity.name, listed_object_count(options),
                 tenant_id_of(options.identity.secret, home_tenant_of(options))),
      index_(options.limits.table.object_count_max * index_entries_per_object),
      self_(index_.add_holder()),
      server_(loop, options.identity, options.limits.server, *this),
      grants_([this] { loop_.post([this] { settle_vacated(); }); }),
      rails_(options.limits.rails, grants_, nullptr),
      started_ms_(boot_ms()) {}

NodeService::~NodeService() = default;

void NodeService::start() {
  server_.listen();
  serving_address_ = server_.serving_address();
  if (!options_.identity.addresses.empty()) { rails_.start(); }
  const auto source = [this](std::uint64_t cursor, std::uint32_t count_max, std::vector<Event>& into) {
    return table_.snapshot(cursor, count_max, into);
  };
  for (const std::string& directory : options_.directories) {
    publishers_.push_back(
        std::make_unique<Publisher>(loop_, options_.identity, Publisher::Route{directory, serving_address_}, source));
  }
  loop_.set_tick(tick_ms, [this] { tick(); });
  loop_.set_background([this] { return work(); });
  loop_.post([this] { tick(); });
}

void NodeService::stop() {
  rails_.stop();
  server_.close_all();
  for (const auto& publisher : publishers_) { publisher->close(); }
}

void NodeService::tick() {
  const std::uint64_t now_ms = boot_ms();
  server_.tick(now_ms);
  if (now_ms > options_.limits.reservation_ms) {
    table_.quarantine_reservations_older_than(now_ms - options_.limits.reservation_ms);
  }
  table_.revoke_holds(now_ms);
  end_expired_grants(now_ms);
  table_.expire(now_ms, expire_count_max);
  settle();
  for (const auto& publisher : publishers_) { publisher->tick(now_ms); }
}

bool NodeService::work() {
  bool more = false;
  for (const auto& publisher : publishers_) { more = publisher->work() || more; }
  return more;
}

void NodeService::invalidate_freed() {
  table_.take_freed(freed_);
  for (const Extent& extent : freed_) { segment_.invalidate(extent); }
  freed_.clear();
}

void NodeService::settle() {
  invalidate_freed();
  table_.take_residencies(residencies_);
  catalogue_.apply(residencies_);
  residencies_.clear();
  table_.take_events(events_);
  if (events_.empty()) { return; }
  (void)index_.apply(self_, events_);
  for (const auto& publisher : publishers_) { publisher->enqueue(events_); }
  events_.clear();
}

void NodeService::admit(Connection& connection) {
  Principal& principal = connection.principal;
  const std::vector<std::string>& tenants = options_.tenants;
  if (principal.role == Role::owner) {
    throw Refusal{Reason::access_denied, "refused_role", "a node takes clients only"};
  }
  if (principal.role == Role::rail && !rails_.has_room()) {
    throw Refusal{Reason::connection_limit, "refused_rails", "no more rails are taken"};
  }
  if (!tenants.empty() && std::find(tenants.begin(), tenants.end(), principal.tenant) == tenants.end()) {
    throw Refusal{Reason::access_denied, "refused_tenant", "tenant '" + principal.tenant + "' may not use this node"};
  }
  principal.home_tenant = principal.tenant == home_tenant_of(options_);
  principal.shared_memory =
      principal.home_tenant && connection.peer.user_id == ::geteuid() && connection.peer.process.open();
}

Welcome NodeService::welcome(const Connection& connection) {
  Welcome welcome;
  welcome.shared_memory = connection.principal.shared_memory;
  welcome.warming = !populated_;
  welcome.small_put_bytes_max = options_.limits.small_put_bytes;
  welcome.arena_bytes = segment_.arena_bytes();
  return welcome;
}

void NodeService::admitted(Connection&) {}

bool NodeService::lost(Connection& connection) {
  if (!connection.principal.shared_memory) {
    return false;  // whoever never had the memory cannot write to it any more
  }
  const ObjectTable::ConnectionStats own = table_.connection_stats(connection.id);
  if (own.hold_count + own.reservation_count + own.quarantined_count == 0) { return false; }
  table_.quarantine_connection(connection.id);
  settle();
  return true;
}

void NodeService::gone(ConnectionId connection) {
  if (grants_.end_all(connection)) {
    table_.quarantine_connection(connection);
    leaving_.insert(connection);
  } else {
    table_.drop_connection(connection);
  }
  settle();
}

void NodeService::serve(Connection& connection, const Frame& frame) {
  const auto verb = static_cast<MessageType>(frame.header.type);
  if (!authorize(connection.principal, verb, connection.principal.tenant_id)) {
    throw Refusal{Reason::access_denied, "denied_verb",
                  "this verb is not allowed to tenant '" + connection.principal.tenant + "'"};
  }
  if (frame.header.type < requests_.size()) { ++requests_[frame.header.type]; }
  serve_object_verb(connection, frame);
  settle();
}

void NodeService::serve_object_verb(Connection& connection, const Frame& frame) {
  switch (static_cast<MessageType>(frame.header.type)) {
    case MessageType::reserve: return reserve(connection, frame);
    case MessageType::commit: return commit(connection, frame);
    case MessageType::abort: return abort(connection, frame);
    case MessageType::put_inline: return put_inline(connection, frame);
    case MessageType::write: return write(connection, frame);
    case MessageType::hold: return hold(connection, frame);
    case MessageType::release: return release(connection, frame);
    case MessageType::touched: return touched(connection, frame);
    case MessageType::read: return read(connection, frame);
    case MessageType::exists: return exists(connection, frame);
    case MessageType::remove:
    case MessageType::pin:
    case MessageType::unpin: return change_keys(connection, frame);
    case MessageType::why: return why(connection, frame);
    case MessageType::damaged: return damaged(connection, frame);
    default: return serve_other_verb(connection, frame);
  }
}

void NodeService::serve_other_verb(Connection& connection, const Frame& frame) {
  switch (static_cast<MessageType>(frame.header.type)) {
    case MessageType::clear: return clear(connection, frame);
    case MessageType::list: return list(connection, frame);
    case MessageType::match: return match(connection, frame);
    case MessageType::describe: return describe(connection, frame);
    case MessageType::stat: return stat(connection, frame);
    case MessageType::arena: return arena(connection, frame);
    case MessageType::ping: return append_empty_frame(connection.stream.output(), reply_header(connection, frame));
    default:
      throw Refusal{Reason::protocol, "malformed_unknown_type",
                    "unknown message type " + std::to_string(frame.header.type)};
  }
}

}  // namespace moonpool
