#include "io/directory_server.hpp"

#include <stdexcept>

#include "io/handshake.hpp"

namespace moonpool {

DirectoryServer::DirectoryServer(DirectoryOptions options) : options_(std::move(options)) {
  options_.identity.incarnation = random_u64();
}

DirectoryServer::~DirectoryServer() {
  if (of_this_process()) {
    stop();
    discard();
  } else {
    abandon();
  }
}

void DirectoryServer::start() {
  const std::lock_guard lock(mutex());
  if (started()) { throw std::logic_error("a directory server starts once"); }
  run(std::make_unique<DirectoryService>(loop(), options_));
}

void DirectoryServer::stop() {
  const std::lock_guard lock(mutex());
  if (running()) { end(); }
}

}  // namespace moonpool
