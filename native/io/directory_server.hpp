// A directory's native side: its loop in a thread, and answers to other threads.
#pragma once

#include "io/directory_service.hpp"
#include "io/loop_thread.hpp"
#include "io/memory.hpp"

namespace moonpool {

// Any thread may call anything.
class DirectoryServer {
 public:
  explicit DirectoryServer(DirectoryOptions options);
  ~DirectoryServer();
  DirectoryServer(const DirectoryServer&) = delete;
  DirectoryServer& operator=(const DirectoryServer&) = delete;
  DirectoryServer(DirectoryServer&&) = delete;
  DirectoryServer& operator=(DirectoryServer&&) = delete;

  // Throws std::system_error (path taken), std::logic_error when it was started before.
  void start();
  void stop();
  // Before start(): an empty document.
  [[nodiscard]] std::string status();
  [[nodiscard]] CounterMap counters();
  [[nodiscard]] std::string check_integrity();

 private:
  DirectoryOptions options_;
  std::mutex mutex_;
  std::uint64_t fork_count_ = fork_count();
  LoopThread thread_;
  std::unique_ptr<DirectoryService> service_;
};

}  // namespace moonpool
