// Looks after a session's mappings while nobody calls: makes their pages present ahead of their first use, and
// notices that the peer has gone, so that an idle client does not keep a dead node's memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/memory.hpp"

namespace moonpool {

class Keeper {
 public:
  // peer must stay open as long as the keeper lives. peer_gone is called once, in the keeper's thread.
  Keeper(const Descriptor& peer, std::function<void()> peer_gone);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  Keeper(Keeper&&) = delete;
  Keeper& operator=(Keeper&&) = delete;
  void populate(const std::shared_ptr<Mapping>& mapping);

 private:
  void run();
  void populate_next();
  void wait();
  void wake();

  int peer_;
  std::function<void()> peer_gone_;
  Descriptor wake_;
  std::atomic<bool> stopping_{false};
  bool peer_is_gone_ = false;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Mapping>> waiting_;
  std::uint64_t fork_count_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace moonpool
