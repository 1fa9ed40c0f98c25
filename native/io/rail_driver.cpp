#include "io/rail_driver.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "io/quiet_thread.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t spin_us = 20;          // before a leader sleeps
constexpr std::uint64_t wait_us_max = 50'000;  // a leader looks at the time at least so often
constexpr std::size_t job_count_max = 1'024;   // of one rail
constexpr std::uint64_t fair_turn = 8;         // each such pick goes to the batch that came first, whatever it is

}  // namespace

RailClient::Driver::Driver(RailOptions options)
    : options_(std::move(options)), fork_count_(fork_count()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.open()) { throw std::system_error(errno, std::generic_category(), "cannot make a wake-up"); }
  const std::uint64_t group = random_u64();
  for (const RailRoute& route : options_.routes) {
    links_.push_back(std::make_unique<RailLink>(options_, route, group));
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
  for (const auto& link : links_) { all.push_back(link->status()); }
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
    take_incoming();
    const std::uint64_t now_us = steady_us();
    const bool moved = step(now_us);
    if (own != nullptr ? own->done() : active_.empty() && !has_incoming_.load(std::memory_order_acquire)) { return; }
    if (moved) {
      idle_since_us = 0;
    } else if (idle_since_us == 0) {
      idle_since_us = now_us;
    } else if (now_us > idle_since_us + spin_us) {
      wait_for_something();
    }
  }
  take_incoming();
  for (const auto& link : links_) {
    link->close(steady_us());
    (void)link->take_jobs();
  }
  give_up_all(Reason::cancelled);
  finish_complete();
}

void RailClient::Driver::take_incoming() {
  if (!has_incoming_.load(std::memory_order_acquire)) { return; }
  const std::lock_guard lock(mutex_);
  has_incoming_.store(false, std::memory_order_release);
  for (Batch& batch : incoming_) { active_.push_back(std::move(batch)); }
  incoming_.clear();
}

// True: something moved, and the next step may find more to do.
bool RailClient::Driver::step(std::uint64_t now_us) {
  expire(now_us);
  connect_links(now_us);
  drop_stalled(now_us);
  assign();
  bool moved = false;
  for (const auto& link : links_) {
    const bool was_up = link->up();
    moved = link->advance(now_us, ended_) || moved;
    if (was_up && !link->up()) { lost_link(*link, nullptr); }
  }
  settle();
  give_up_if_hopeless(now_us);
  finish_complete();
  return moved;
}

void RailClient::Driver::wait_for_something() {
  std::vector<pollfd> waiting{{wake_.number(), POLLIN, 0}};
  for (const auto& link : links_) {
    if (link->state() != RailLink::State::down) { waiting.push_back({link->socket(), link->wanted_events(), 0}); }
  }
  std::uint64_t wait_us = wait_us_max;
  for (const Batch& batch : active_) { wait_us = std::min(wait_us, batch->order().deadline.remaining_us()); }
  {
    const std::lock_guard lock(mutex_);
    if (!incoming_.empty() || closed_.load()) { return; }
    polling_ = true;
  }
  const timespec limit{0, static_cast<long>(wait_us * 1'000)};
  (void)::ppoll(waiting.data(), waiting.size(), &limit, nullptr);
  {
    const std::lock_guard lock(mutex_);
    polling_ = false;
  }
  std::uint64_t count = 0;
  if (waiting.front().revents != 0) { (void)!::read(wake_.number(), &count, sizeof count); }
}

void RailClient::Driver::connect_links(std::uint64_t now_us) {
  const bool forget = forgetting_failures_.load(std::memory_order_relaxed) && forgetting_failures_.exchange(false);
  for (const auto& link : links_) {
    if (forget && !link->up()) { link->forget_failures(); }
    if (link->may_connect(now_us)) { link->connect(now_us); }
  }
}

// One that does not get on while another can.
void RailClient::Driver::drop_stalled(std::uint64_t now_us) {
  if (links_.size() < 2) { return; }
  const auto is_stalled = [&](const std::unique_ptr<RailLink>& link) {
    return link->up() && !link->idle() && now_us > link->moved_us() + options_.stall_ms * 1'000;
  };
  const bool has_other =
      std::any_of(links_.begin(), links_.end(), [&](const auto& link) { return link->up() && !is_stalled(link); });
  if (!has_other) { return; }
  for (const auto& link : links_) {
    if (is_stalled(link)) {
      link->close(now_us);
      lost_link(*link, nullptr);
    }
  }
}

void RailClient::Driver::expire(std::uint64_t now_us) {
  for (const Batch& batch : active_) {
    if (!batch->complete() && now_us >= batch->order().deadline.at_us()) {
      withdraw(*batch, now_us);
      batch->give_up(Reason::timed_out);
    }
  }
}

// The peer cannot be reached: whoever waits learns it now, and not at his deadline.
void RailClient::Driver::give_up_if_hopeless(std::uint64_t now_us) {
  for (const auto& link : links_) {
    if (!link->hopeless(now_us)) { return; }
  }
  const RailLink& link = *links_.front();
  {
    const std::lock_guard lock(mutex_);
    last_message_ = link.last_message();
  }
  give_up_all(link.last_reason() == Reason::none ? Reason::unavailable : link.last_reason());
}

void RailClient::Driver::give_up_all(Reason reason) {
  for (const Batch& batch : active_) {
    if (!batch->complete()) { batch->give_up(reason); }
  }
}

void RailClient::Driver::withdraw(RailBatch& batch, std::uint64_t now_us) {
  for (const auto& link : links_) {
    if (!link->forget(&batch)) {
      link->close(now_us);
      lost_link(*link, &batch);
    }
  }
}

// What it did not bring to an end goes out again; what it may still bring about is to be stopped first.
void RailClient::Driver::lost_link(RailLink& link, RailBatch* withdrawn) {
  bool may_apply = false;
  for (const RailJob& job : link.take_jobs()) {
    may_apply = may_apply || job.verb == RailVerb::write;
    if (job.verb == RailVerb::cancel) {
      for (Lost& lost : lost_) { lost.asked = lost.asked && lost.rail != job.offset; }
    } else if (job.batch == withdrawn && withdrawn != nullptr) {
      withdrawn->may_be_applied_later(job);
    } else if (job.batch != nullptr) {
      job.batch->put_back(job);
    }
  }
  if (may_apply) { lost_.push_back({link.connection(), link.incarnation(), false}); }
}

void RailClient::Driver::ask_to_drop_lost() {
  for (const auto& link : links_) {
    if (!link->up()) { continue; }
    // Another process than the one that had the rail: what that might have done is gone with it.
    std::erase_if(lost_, [&](const Lost& lost) { return lost.incarnation != link->incarnation(); });
    for (Lost& lost : lost_) {
      if (lost.asked) { continue; }
      RailJob job;
      job.verb = RailVerb::cancel;
      job.offset = lost.rail;
      link->push(job);
      lost.asked = true;
    }
    return;
  }
}

void RailClient::Driver::assign() {
  if (!lost_.empty()) {
    ask_to_drop_lost();
    if (!lost_.empty()) { return; }
  }
  while (RailBatch* batch = next_batch()) {
    RailLink* link = next_link(batch->next_bytes(options_.slice_bytes));
    if (link == nullptr) { return; }
    link->push(batch->next(options_.slice_bytes));
    ++pick_count_;
  }
}

RailBatch* RailClient::Driver::next_batch() {
  RailBatch* best = nullptr;
  for (const Batch& batch : active_) {
    if (!batch->has_next() || (best != nullptr && batch->order().priority >= best->order().priority)) { continue; }
    best = batch.get();
    if (pick_count_ % fair_turn == 0) { break; }
  }
  return best;
}

RailLink* RailClient::Driver::next_link(std::uint64_t slice_bytes) {
  RailLink* best = nullptr;
  for (std::size_t turn = 0; turn < links_.size(); ++turn) {
    RailLink& link = *links_[(next_link_ + turn) % links_.size()];
    const std::uint64_t inflight_bytes = link.inflight_bytes();
    const bool has_room = inflight_bytes == 0 || inflight_bytes + slice_bytes <= options_.inflight_bytes;
    if (!link.up() || !has_room || link.job_count() >= job_count_max) { continue; }
    if (best == nullptr || inflight_bytes < best->inflight_bytes()) { best = &link; }
  }
  ++next_link_;
  return best;
}

void RailClient::Driver::settle() {
  for (const RailLink::Ended& ended : ended_) {
    if (ended.job.verb == RailVerb::cancel) {
      std::erase_if(lost_, [&](const Lost& lost) { return lost.rail == ended.job.offset; });
    } else if (ended.job.batch != nullptr) {
      ended.job.batch->ended(ended.job, ended.reason, options_.slice_bytes);
    }
  }
  ended_.clear();
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
