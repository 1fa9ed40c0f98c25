#include "io/node_remote.hpp"

#include "core/checksum.hpp"

namespace moonpool {
namespace {

// One for each piece; their checksums are put together again afterwards.
void append_operations(const RemoteValue& value, bool write, std::vector<RailOperation>& into) {
  std::uint64_t offset = 0;
  for (const Piece& piece : value.pieces) {
    into.push_back({write, true, value.token, offset, piece});
    offset += piece.length;
  }
}

RemoteMoved put_together(const RemoteValue& value, std::span<const RailOutcome> outcomes) {
  RemoteMoved moved;
  for (std::size_t at = 0; at < outcomes.size(); ++at) {
    if (outcomes[at].reason != Reason::none) {
      // It was granted a moment ago: the node took it back because we took too long.
      moved.reason = outcomes[at].reason == Reason::unknown_region ? Reason::deadline : outcomes[at].reason;
      return moved;
    }
    moved.checksum = crc32c_combine(moved.checksum, outcomes[at].checksum, value.pieces[at].length);
  }
  return moved;
}

}  // namespace

NodeRails::NodeRails(const PeerOptions& peer, std::uint32_t rail_count)
    : state_(nullptr), first_(std::make_unique<State>()) {
  first_->fork_count = fork_count();
  state_.store(first_.get());
  if (!peer.address.remote()) { return; }
  options_.secret = peer.secret;
  options_.tenant = peer.tenant;
  options_.name = peer.name;
  options_.connect_timeout_ms = peer.connect_timeout_ms;
  options_.routes.assign(rail_count, RailRoute{text_of(peer.address), {}});
}

NodeRails::~NodeRails() {
  // A parent's state may be locked, and its rails belong to threads that are not here: it stays as it is.
  if (first_->fork_count != fork_count()) { (void)first_.release(); }
  State* const last = state_.load();
  if (last != first_.get() && last->fork_count == fork_count()) { const std::unique_ptr<State> own(last); }
}

NodeRails::State& NodeRails::state() {
  State* current = state_.load();
  if (current->fork_count == fork_count()) { return *current; }
  auto fresh = std::make_unique<State>();
  fresh->fork_count = fork_count();
  if (state_.compare_exchange_strong(current, fresh.get())) { (void)fresh.release(); }
  return *state_.load();
}

std::shared_ptr<RailClient> NodeRails::client() {
  State& current = state();
  const std::lock_guard lock(current.mutex);
  if (!current.client && !current.closed) { current.client = std::make_shared<RailClient>(options_); }
  return current.client;
}

bool NodeRails::ready(Deadline deadline) {
  if (!possible()) { return false; }
  const std::shared_ptr<RailClient> rails = client();
  if (!rails) { return false; }
  for (const RailStatus& rail : rails->status()) {
    if (std::string_view(rail.state) == "up") { return true; }
  }
  return rails->connect(deadline.sooner(Deadline::after_ms(options_.connect_timeout_ms))).reason == Reason::none;
}

std::vector<RemoteMoved> NodeRails::read(std::span<const RemoteValue> values, Deadline deadline) {
  return move(values, false, deadline);
}

std::vector<RemoteMoved> NodeRails::write(std::span<const RemoteValue> values, Deadline deadline) {
  return move(values, true, deadline);
}

std::vector<RemoteMoved> NodeRails::move(std::span<const RemoteValue> values, bool write, Deadline deadline) {
  std::vector<RemoteMoved> moved(values.size(), RemoteMoved{Reason::unavailable, 0});
  const std::shared_ptr<RailClient> rails = values.empty() || !possible() ? nullptr : client();
  if (!rails) { return moved; }
  std::vector<RailOperation> operations;
  for (const RemoteValue& value : values) { append_operations(value, write, operations); }
  RailOrder order;
  order.deadline = deadline;
  const std::vector<RailOutcome> outcomes = rails->run(operations, order);
  std::span<const RailOutcome> rest(outcomes);
  for (std::size_t at = 0; at < values.size(); ++at) {
    moved[at] = put_together(values[at], rest.first(values[at].pieces.size()));
    rest = rest.subspan(values[at].pieces.size());
  }
  return moved;
}

std::vector<RailStatus> NodeRails::status() {
  State& current = state();
  std::shared_ptr<RailClient> rails;
  {
    const std::lock_guard lock(current.mutex);
    rails = current.client;
  }
  return rails ? rails->status() : std::vector<RailStatus>{};
}

void NodeRails::close() {
  std::shared_ptr<RailClient> rails;
  State& current = state();
  {
    const std::lock_guard lock(current.mutex);
    current.closed = true;
    rails.swap(current.client);
  }
  if (rails) { rails->close(); }
}

}  // namespace moonpool
