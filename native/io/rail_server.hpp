// The passive side of rails: threads that serve the slices of peers. No Python runs here.
#pragma once

#include <mutex>
#include <thread>
#include <unordered_map>

#include "io/frame_server.hpp"
#include "io/loop_thread.hpp"
#include "io/rail_session.hpp"

namespace moonpool {

struct RailLimits {
  std::uint32_t thread_count = 2;
  std::uint32_t rail_count = 256;
  std::uint64_t silence_ms = 10'000;  // a rail that is silent in the middle of a slice, or takes no replies, is closed
};

// Any thread.
class RailServer {
 public:
  // inbox: null where no messages are taken. Both outlive the server.
  RailServer(const RailLimits& limits, RegionAuthority& authority, RailInbox* inbox);
  ~RailServer();
  RailServer(const RailServer&) = delete;
  RailServer& operator=(const RailServer&) = delete;
  RailServer(RailServer&&) = delete;
  RailServer& operator=(RailServer&&) = delete;

  void start();  // throws std::system_error
  // Closes every rail; nobody is inside any slice afterwards.
  void stop();
  // In a forked child, which has the object and not the threads.
  void abandon();
  // False: no more rails are taken at the moment. To be asked before a rail is welcomed.
  [[nodiscard]] bool has_room() const;
  void take(ProvenRail rail);
  [[nodiscard]] std::size_t rail_count() const;
  [[nodiscard]] CounterMap counters() const;

 private:
  struct Worker {
    LoopThread thread;
    std::unordered_map<ConnectionId, std::unique_ptr<RailSession>> sessions;  // of the worker's thread alone
    std::unordered_map<ConnectionId, std::uint32_t> watched;
  };
  struct Place {
    std::size_t worker = 0;
    std::uint64_t group = 0;  // rails of one client have the same
  };
  void adopt(std::size_t worker_index, ProvenRail rail);
  void serve(Worker& worker, ConnectionId id);
  void drop(Worker& worker, ConnectionId id);
  void tick(Worker& worker);
  void cancel(std::size_t worker_index, RailSession& asking, ConnectionId rail, std::uint32_t number);
  void answer_dropped(std::size_t worker_index, ConnectionId asking, std::uint32_t number);

  RailLimits limits_;
  RegionAuthority& authority_;
  RailInbox* inbox_;
  RailCounters counters_;
  std::vector<std::unique_ptr<Worker>> workers_;
  mutable std::mutex mutex_;  // of the members below
  std::unordered_map<ConnectionId, Place> places_;
  std::size_t next_worker_ = 0;
  bool running_ = false;
};

}  // namespace moonpool
