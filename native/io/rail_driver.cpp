#include "io/rail_driver.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "core/rail_frame.hpp"
#include "io/quiet_thread.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t wait_us_max = 50'000;  // a leader looks at the time at least so often
constexpr std::uint64_t ask_again_us = 500'000;  // a peer that has not said that it dropped a rail

PlanLimits limits_of(const RailOptions& options) {
  constexpr std::uint64_t slice_bytes_max =
      rail_slice_bytes_max / 4 * 3;  // a slice may be a quarter longer than aimed at
  PlanLimits limits;
  limits.rails.stall_us_min = options.stall_ms * 1'000;
  limits.slices.slice_bytes_max = std::min(options.slice_bytes, slice_bytes_max);
  limits.slices.slice_bytes_min = std::min(limits.slices.slice_bytes_min, limits.slices.slice_bytes_max);
  limits.slices.window_bytes_max = options.inflight_bytes;
  limits.slices.window_bytes_min = std::min(limits.slices.window_bytes_min, options.inflight_bytes);
  limits.slices.window_count_max = 1'024;
  limits.transfer_count_max = 1U << 16U;
  return limits;
}

}  // namespace

RailClient::Driver::Driver(RailOptions options)
    : options_(std::move(options)),
      fork_count_(fork_count()),
      plan_(limits_of(options_)),
      published_(options_.routes.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.open()) { throw std::system_error(errno, std::generic_category(), "cannot make a wake-up"); }
  const std::uint64_t group = random_u64();
  for (const RailRoute& route : options_.routes) {
    links_.push_back(std::make_unique<RailLink>(options_, route, group));
    (void)plan_.add_rail({route.nominal_bytes_per_second, route.locality_permille});
  }
}

RailClient::Driver::~Driver() {
  if (fork_count_ == fork_count()) {
    close();
  } else if (background_.joinable()) {
    background_.detach();
  }
}

void RailClient::Driver::check_process() const {
  if (fork_count_ != fork_count()) {
    throw std::logic_error("these rails belong to the parent of this process: connect again after a fork");
  }
}

void RailClient::Driver::enqueue(const Batch& batch) {
  incoming_.push_back(batch);
  has_incoming_.store(true, std::memory_order_release);
  unfinished_count_.fetch_add(1);
  if (polling_) {
    const std::uint64_t one = 1;
    (void)!::write(wake_.number(), &one, sizeof one);
  }
}

void RailClient::Driver::run(const Batch& batch) {
  check_process();
  std::unique_lock lock(mutex_);
  enqueue(batch);
  while (!batch->done()) {
    if (led_) {
      follower_count_.fetch_add(1);
      changed_.wait(lock);
      follower_count_.fetch_sub(1);
      continue;
    }
    led_ = true;
    lock.unlock();
    lead(batch.get());
    lock.lock();
    led_ = false;
    if (unfinished_count_.load() > 0 || closed_.load()) { changed_.notify_all(); }
  }
}

void RailClient::Driver::submit(const Batch& batch) {
  check_process();
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.load()) {
      enqueue(batch);
      if (!background_.joinable()) {
        background_ = quiet_thread([this] { background(); });
      }
      changed_.notify_all();
      return;
    }
  }
  batch->give_up(Reason::cancelled);
  batch->finish();
}

// Leads where nobody waits for a batch of his own.
void RailClient::Driver::background() {
  std::unique_lock lock(mutex_);
  while (!closed_.load()) {
    if (led_ || unfinished_count_.load() == 0 || follower_count_.load() > 0) {
      changed_.wait(lock);
      continue;
    }
    led_ = true;
    lock.unlock();
    lead(nullptr);
    lock.lock();
    led_ = false;
    changed_.notify_all();
  }
}

RailClient::Connected RailClient::Driver::connect(Deadline deadline) {
  forgetting_failures_.store(true);  // who asks for a connection by name gets a try
  RailOrder order;
  order.deadline = deadline;
  order.priority = Priority::latency;
  const auto batch =
      std::make_shared<RailBatch>(std::vector<RailOperation>{}, order, RailVerb::probe, std::function<void()>{});
  run(batch);
  Connected connected{batch->message_reason(), {}};
  const std::lock_guard lock(mutex_);
  if (connected.reason != Reason::none) { connected.message = last_message_; }
  return connected;
}

std::vector<RailStatus> RailClient::Driver::status() const {
  std::vector<RailStatus> all;
  for (std::size_t rail = 0; rail < links_.size(); ++rail) {
    RailStatus& status = all.emplace_back(links_[rail]->status());
    const RailState state = published_[rail].state.load(std::memory_order_relaxed);
    if (state == RailState::paused && status.failure_count > 0) { status.state = "paused"; }
    if (state == RailState::trial) { status.state = "trial"; }
    status.bytes_per_second = static_cast<double>(published_[rail].bytes_per_second.load(std::memory_order_relaxed));
  }
  return all;
}

void RailClient::Driver::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_.store(true);
    const std::uint64_t one = 1;
    (void)!::write(wake_.number(), &one, sizeof one);
    changed_.notify_all();
  }
  if (background_.joinable()) { background_.join(); }
  std::unique_lock lock(mutex_);
  while (led_) { changed_.wait(lock); }
  led_ = true;
  lock.unlock();
  lead(nullptr);  // gives up what is left
  lock.lock();
  led_ = false;
  changed_.notify_all();
}

// Until `own` is done; null: until nothing is left to do. After close(): gives up everything.
void RailClient::Driver::lead(const RailBatch* own) {
  std::uint64_t idle_since_us = 0;
  while (!closed_.load(std::memory_order_relaxed)) {
    const std::uint64_t now_us = steady_us();
    take_incoming(now_us);
    const bool moved = step(now_us);
    if (own != nullptr ? own->done() : active_.empty() && !has_incoming_.load(std::memory_order_acquire)) { return; }
    if (moved) {
      if (idle_since_us != 0) { spin_.ended(now_us - idle_since_us); }
      idle_since_us = 0;
    } else if (idle_since_us == 0) {
      idle_since_us = now_us;
    } else if (!spin_.goes_on(idle_since_us, now_us)) {
      wait_for_something();
    }
  }
  const std::uint64_t now_us = steady_us();
  take_incoming(now_us);
  give_up_all(Reason::cancelled);
  settle_transfers(now_us);
  for (RailIndex rail = 0; rail < links_.size(); ++rail) {
    links_[rail]->close();
    lost(rail, now_us);
  }
  finish_complete();
}

void RailClient::Driver::take_incoming(std::uint64_t now_us) {
  if (!has_incoming_.load(std::memory_order_acquire)) { return; }
  std::vector<Batch> taken;
  {
    const std::lock_guard lock(mutex_);
    has_incoming_.store(false, std::memory_order_release);
    taken.swap(incoming_);
  }
  if (forgetting_failures_.load(std::memory_order_relaxed) && forgetting_failures_.exchange(false)) {
    plan_.forget_failures();
  }
  for (Batch& batch : taken) {
    plan_next(batch, now_us);
    active_.push_back(std::move(batch));
  }
}

// The next of its phases that has anything to be planned.
void RailClient::Driver::plan_next(const Batch& batch, std::uint64_t now_us) {
  if (batch->complete()) { return; }
  const PlannedTransfer how{batch->order().priority, batch->order().deadline.at_us()};
  const std::optional<TransferId> transfer = plan_.add(batch->planned(), how, now_us);
  if (!transfer) {
    batch->give_up(Reason::connection_limit);
    return;
  }
  batch->set_transfer(*transfer);
  transfers_.emplace(*transfer, batch);
}

// True: something moved, and the next step may find more to do.
bool RailClient::Driver::step(std::uint64_t now_us) {
  expire(now_us);
  connect_links(now_us);
  drop_stalled(now_us);
  ask_to_drop(now_us);
  assign(now_us);
  bool moved = false;
  for (RailIndex rail = 0; rail < links_.size(); ++rail) { moved = advance(rail, now_us) || moved; }
  give_up_if_denied();
  settle_transfers(now_us);
  finish_complete();
  for (RailIndex rail = 0; rail < links_.size(); ++rail) {
    published_[rail].state.store(plan_.rails()[rail].state, std::memory_order_relaxed);
    published_[rail].bytes_per_second.store(plan_.rails()[rail].bytes_per_second, std::memory_order_relaxed);
  }
  return moved;
}

void RailClient::Driver::wait_for_something() {
  std::vector<pollfd> waiting{{wake_.number(), POLLIN, 0}};
  for (const auto& link : links_) {
    if (link->state() != RailLink::State::down) { waiting.push_back({link->socket(), link->wanted_events(), 0}); }
  }
  const std::uint64_t now_us = steady_us();
  const std::uint64_t wake_at_us = std::clamp(plan_.wake_at_us(), now_us, now_us + wait_us_max);
  {
    const std::lock_guard lock(mutex_);
    if (!incoming_.empty() || closed_.load()) { return; }
    polling_ = true;
  }
  const timespec limit{0, static_cast<long>((wake_at_us - now_us) * 1'000)};
  (void)::ppoll(waiting.data(), waiting.size(), &limit, nullptr);
  {
    const std::lock_guard lock(mutex_);
    polling_ = false;
  }
  std::uint64_t count = 0;
  if (waiting.front().revents != 0) { (void)!::read(wake_.number(), &count, sizeof count); }
}

void RailClient::Driver::connect_links(std::uint64_t now_us) {
  for (const RailIndex rail : plan_.rails_to_connect(now_us)) {
    plan_.connecting(rail);
    links_[rail]->connect(now_us);
    if (links_[rail]->state() == RailLink::State::down) { lost(rail, now_us); }
  }
}

void RailClient::Driver::drop_stalled(std::uint64_t now_us) {
  if (plan_.wake_at_us() > now_us) { return; }
  for (const RailIndex rail : plan_.stalled(now_us)) {
    links_[rail]->close();
    lost(rail, now_us);
  }
}

void RailClient::Driver::expire(std::uint64_t now_us) {
  if (plan_.wake_at_us() > now_us) { return; }
  for (const Batch& batch : active_) {
    if (!batch->complete() && now_us >= batch->order().deadline.at_us()) {
      withdraw(*batch, now_us);
      (void)plan_.give_up(batch->transfer(), Reason::timed_out);
    }
  }
}

// Every rail was told that it will never be welcome: whoever waits learns it now.
void RailClient::Driver::give_up_if_denied() {
  for (const auto& link : links_) {
    const Reason reason = link->last_reason();
    const bool denied = reason != Reason::none && reason != Reason::unavailable && reason != Reason::timed_out;
    if (link->state() != RailLink::State::down || !denied) { return; }
  }
  give_up_all(links_.front()->last_reason());
}

void RailClient::Driver::give_up_all(Reason reason) {
  for (const auto& [transfer, batch] : transfers_) { (void)plan_.give_up(transfer, reason); }
}

void RailClient::Driver::withdraw(RailBatch& batch, std::uint64_t now_us) {
  for (RailIndex rail = 0; rail < links_.size(); ++rail) {
    std::vector<RailJob> unsent;
    const bool forgotten = links_[rail]->forget(&batch, unsent);
    for (const RailJob& job : unsent) { plan_.withdrawn(job.slice); }
    if (forgotten) { continue; }
    links_[rail]->close();
    lost(rail, now_us);
  }
}

void RailClient::Driver::connected(RailIndex rail, std::uint64_t now_us) {
  connections_[++last_connection_] = {links_[rail]->connection(), links_[rail]->incarnation(), 0};
  plan_.connected(rail, last_connection_, now_us);
}

// The link is down. What it did not bring to an end goes out again; what it may still bring about is to be stopped.
void RailClient::Driver::lost(RailIndex rail, std::uint64_t now_us) {
  for (const RailJob& job : links_[rail]->take_jobs()) {
    if (job.verb != RailVerb::cancel) { continue; }
    if (const auto asked = connections_.find(job.slice); asked != connections_.end()) { asked->second.asked_us = 0; }
  }
  if (plan_.rails()[rail].state == RailState::paused) { return; }
  {
    const std::lock_guard lock(mutex_);
    last_message_ = links_[rail]->last_message();
  }
  const std::uint64_t connection = plan_.rails()[rail].connection;
  plan_.failed(rail, now_us);
  const std::vector<std::uint64_t>& owed = plan_.drops_owed();
  if (std::find(owed.begin(), owed.end(), connection) == owed.end()) { connections_.erase(connection); }
}

void RailClient::Driver::ask_to_drop(std::uint64_t now_us) {
  if (plan_.drops_owed().empty()) { return; }
  for (std::size_t turn = 0; turn < links_.size(); ++turn) {
    RailLink& link = *links_[(next_asked_ + turn) % links_.size()];
    if (!link.up()) { continue; }
    const std::vector<std::uint64_t> owed = plan_.drops_owed();
    for (const std::uint64_t name : owed) {
      Connection& connection = connections_[name];
      if (connection.incarnation != link.incarnation()) {
        // Another process than the one that had the rail: what that might have done is gone with it.
        plan_.dropped(name);
        connections_.erase(name);
      } else if (connection.asked_us == 0 || now_us > connection.asked_us + ask_again_us) {
        RailJob job;
        job.verb = RailVerb::cancel;
        job.slice = name;
        job.offset = connection.rail;
        link.push(job);
        connection.asked_us = now_us;
        ++next_asked_;
      }
    }
    return;
  }
}

void RailClient::Driver::assign(std::uint64_t now_us) {
  while (const std::optional<PlannedSlice> slice = plan_.next(now_us)) {
    links_[slice->rail]->push(transfers_.find(slice->transfer)->second->job(*slice));
  }
}

bool RailClient::Driver::advance(RailIndex rail, std::uint64_t now_us) {
  RailLink& link = *links_[rail];
  const RailLink::State before = link.state();
  const bool moved = link.advance(now_us, ended_);
  settle_jobs(now_us);
  const RailLink::State after = link.state();
  if (after == RailLink::State::up) {
    before == after ? (moved ? plan_.progressed(rail, now_us) : void()) : connected(rail, now_us);
  } else if (after == RailLink::State::down && before != after) {
    lost(rail, now_us);
  }
  return moved;
}

void RailClient::Driver::settle_jobs(std::uint64_t now_us) {
  for (const RailLink::Ended& ended : ended_) {
    const RailJob& job = ended.job;
    if (job.verb == RailVerb::cancel) {
      plan_.dropped(job.slice);
      connections_.erase(job.slice);
    } else if (ended.reason == Reason::none) {
      if (job.batch != nullptr) { job.batch->applied(job); }
      plan_.finished(job.slice, now_us);
    } else {
      plan_.refused(job.slice, ended.reason, now_us);
    }
  }
  ended_.clear();
}

void RailClient::Driver::settle_transfers(std::uint64_t now_us) {
  for (std::vector<TransferResult> done = plan_.take_done(); !done.empty(); done = plan_.take_done()) {
    for (const TransferResult& result : done) {
      const auto found = transfers_.find(result.transfer);
      const Batch batch = std::move(found->second);
      transfers_.erase(found);
      batch->settle(result);
      plan_next(batch, now_us);
    }
  }
}

void RailClient::Driver::finish_complete() {
  const auto first =
      std::stable_partition(active_.begin(), active_.end(), [](const Batch& batch) { return !batch->complete(); });
  if (first == active_.end()) { return; }
  const std::vector<Batch> complete(std::make_move_iterator(first), std::make_move_iterator(active_.end()));
  active_.erase(first, active_.end());
  for (const Batch& batch : complete) { batch->finish(); }
  unfinished_count_.fetch_sub(complete.size());
  const std::lock_guard lock(mutex_);
  if (follower_count_.load() > 0) { changed_.notify_all(); }
}

}  // namespace moonpool
