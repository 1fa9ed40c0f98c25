#include "io/rail_server.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "io/clock.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t tick_ms = 250;
constexpr std::uint64_t spin_us_max = 100;

}  // namespace

RailServer::RailServer(const RailLimits& limits, RegionAuthority& authority, RailInbox* inbox)
    : limits_(limits), authority_(authority), inbox_(inbox) {}

RailServer::~RailServer() { stop(); }

void RailServer::start() {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t index = 0; index < std::max(1U, limits_.thread_count); ++index) {
    Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
    worker.thread.loop().set_spin(spin_us_max);
    worker.thread.loop().set_tick(tick_ms, [this, &worker] { tick(worker); });
    worker.thread.start();
  }
  running_ = true;
}

void RailServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (!running_) { return; }
    running_ = false;
  }
  for (const auto& worker : workers_) {
    worker->thread.stop([&sessions = worker->sessions] { sessions.clear(); });
  }
  workers_.clear();
  places_.clear();
}

void RailServer::abandon() {
  running_ = false;
  for (auto& worker : workers_) {
    worker->thread.abandon();
    (void)worker.release();
  }
  workers_.clear();
}

bool RailServer::has_room() const {
  const std::lock_guard lock(mutex_);
  return running_ && places_.size() < limits_.rail_count;
}

std::size_t RailServer::rail_count() const {
  const std::lock_guard lock(mutex_);
  return places_.size();
}

void RailServer::take(ProvenRail rail) {
  const std::lock_guard lock(mutex_);
  if (!running_) { return; }
  const std::size_t index = next_worker_++ % workers_.size();
  places_[rail.id] = {index, rail.principal.incarnation};
  const auto shared = std::make_shared<ProvenRail>(std::move(rail));  // tasks can be copied
  workers_[index]->thread.loop().post([this, index, shared] { adopt(index, std::move(*shared)); });
}

void RailServer::adopt(std::size_t worker_index, ProvenRail rail) {
  Worker& worker = *workers_[worker_index];
  const ConnectionId id = rail.id;
  const auto cancel_other = [this, worker_index](RailSession& asking, ConnectionId other, std::uint32_t number) {
    cancel(worker_index, asking, other, number);
  };
  auto session = std::make_unique<RailSession>(
      std::move(rail), RailSession::Surroundings{authority_, inbox_, counters_, limits_.silence_ms, cancel_other});
  const int socket = session->socket();
  worker.sessions.emplace(id, std::move(session));
  worker.watched[id] = EPOLLIN;
  worker.thread.loop().watch(socket, EPOLLIN, [this, &worker, id](std::uint32_t) { serve(worker, id); });
  counters_.accepted.fetch_add(1, std::memory_order_relaxed);
}

void RailServer::serve(Worker& worker, ConnectionId id) {
  const auto found = worker.sessions.find(id);
  if (found == worker.sessions.end()) { return; }
  RailSession& session = *found->second;
  bool goes_on = false;
  try {
    goes_on = session.serve();
  } catch (const std::exception&) {  // one rail's trouble must not end the thread that serves the others
    counters_.errors.fetch_add(1, std::memory_order_relaxed);
  }
  if (!goes_on) {
    drop(worker, id);
    return;
  }
  if (const std::uint32_t wanted = session.wanted_events(); wanted != worker.watched[id]) {
    worker.thread.loop().change(session.socket(), wanted);
    worker.watched[id] = wanted;
  }
}

void RailServer::drop(Worker& worker, ConnectionId id) {
  const auto found = worker.sessions.find(id);
  if (found == worker.sessions.end()) { return; }
  worker.thread.loop().forget(found->second->socket());
  worker.sessions.erase(found);
  worker.watched.erase(id);
  counters_.closed.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  places_.erase(id);  // after the session's end: who finds no place here knows that nobody is inside
}

void RailServer::tick(Worker& worker) {
  const std::uint64_t now_ms = boot_ms();
  std::vector<ConnectionId> late;
  for (const auto& [id, session] : worker.sessions) {
    if (session->is_late(now_ms)) { late.push_back(id); }
  }
  for (const ConnectionId id : late) {
    counters_.late.fetch_add(1, std::memory_order_relaxed);
    drop(worker, id);
  }
}

// Another client's rails are as good as unknown.
void RailServer::cancel(std::size_t worker_index, RailSession& asking, ConnectionId rail, std::uint32_t number) {
  const ConnectionId asking_id = asking.id();
  const std::uint64_t group = asking.principal().incarnation;
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(rail);
  if (!running_ || rail == asking_id || found == places_.end() || found->second.group != group) {
    workers_[worker_index]->thread.loop().post(
        [this, worker_index, asking_id, number] { answer_dropped(worker_index, asking_id, number); });
    return;
  }
  const std::size_t other_index = found->second.worker;
  workers_[other_index]->thread.loop().post([this, other_index, rail, worker_index, asking_id, number] {
    drop(*workers_[other_index], rail);
    workers_[worker_index]->thread.loop().post(
        [this, worker_index, asking_id, number] { answer_dropped(worker_index, asking_id, number); });
  });
}

void RailServer::answer_dropped(std::size_t worker_index, ConnectionId asking, std::uint32_t number) {
  Worker& worker = *workers_[worker_index];
  const auto found = worker.sessions.find(asking);
  if (found == worker.sessions.end()) { return; }
  if (!found->second->answer_dropped(number)) {
    drop(worker, asking);
  } else {
    serve(worker, asking);  // what is unsent wants to be watched
  }
}

CounterMap RailServer::counters() const {
  const auto value = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {{"rail_read_bytes", value(counters_.read_bytes)},
          {"rail_written_bytes", value(counters_.written_bytes)},
          {"rail_read_slices", value(counters_.read_slices)},
          {"rail_written_slices", value(counters_.written_slices)},
          {"rail_refused_slices", value(counters_.refused_slices)},
          {"rail_messages", value(counters_.messages)},
          {"rail_malformed", value(counters_.malformed)},
          {"rail_late", value(counters_.late)},
          {"rails_accepted", value(counters_.accepted)},
          {"rails_closed", value(counters_.closed)},
          {"rail_errors", value(counters_.errors)}};
}

}  // namespace moonpool
