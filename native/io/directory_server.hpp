// A directory's native side: its service in a thread of its own.
#pragma once

#include "io/directory_service.hpp"
#include "io/server_shell.hpp"

namespace moonpool {

class DirectoryServer : public ServerShell<DirectoryService> {
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

 private:
  DirectoryOptions options_;
};

}  // namespace moonpool
