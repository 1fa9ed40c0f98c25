#include "io/directory_server.hpp"

#include <stdexcept>

#include "io/handshake.hpp"

namespace moonpool {

DirectoryServer::DirectoryServer(DirectoryOptions options) : options_(std::move(options)) {
  options_.identity.incarnation = random_u64();
}

DirectoryServer::~DirectoryServer() {
  if (fork_count_ == fork_count()) {
    stop();
    return;
  }
  // A forked child: the threads are its parent's, and what they were changing may be half changed. It stays as it is.
  if (thread_.running()) { thread_.abandon(); }
  (void)service_.release();
}

void DirectoryServer::start() {
  const std::lock_guard lock(mutex_);
  if (service_) { throw std::logic_error("a directory server starts once"); }
  auto service = std::make_unique<DirectoryService>(thread_.loop(), options_);
  service->start();
  service_ = std::move(service);
  thread_.start();
}

void DirectoryServer::stop() {
  const std::lock_guard lock(mutex_);
  if (thread_.running()) {
    thread_.stop([this] { service_->stop(); });
  }
}

std::string DirectoryServer::status() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->status(std::numeric_limits<std::size_t>::max()); }) : "{}";
}

CounterMap DirectoryServer::counters() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->counters(); }) : CounterMap{};
}

std::string DirectoryServer::check_integrity() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->check_integrity(); }) : std::string{};
}

}  // namespace moonpool
