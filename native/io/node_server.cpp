#include "io/node_server.hpp"

#include <stdexcept>

#include "io/handshake.hpp"

namespace moonpool {

NodeServer::NodeServer(NodeOptions options) : options_(std::move(options)) {
  options_.identity.incarnation = random_u64();
}

NodeServer::~NodeServer() {
  if (fork_count_ == fork_count()) {
    stop();
    return;
  }
  // A forked child: the threads are its parent's, and what they were changing may be half changed. It stays as it is.
  if (thread_.running()) { thread_.abandon(); }
  if (populate_thread_.joinable()) { populate_thread_.detach(); }
  (void)segment_.release();
  (void)service_.release();
}

void NodeServer::start() {
  const std::lock_guard lock(mutex_);
  if (service_) { throw std::logic_error("a node server starts once"); }
  check_free(options_.identity.path);  // before memory is asked for
  segment_ = std::make_unique<Segment>(options_.identity.name, options_.segment_bytes, options_.arena_bytes);
  auto service = std::make_unique<NodeService>(thread_.loop(), options_, *segment_, populated_bytes_);
  service->start();
  service_ = std::move(service);
  thread_.start();
  populate_thread_ = quiet_thread([this] { populate(); });
}

void NodeServer::populate() {
  const bool complete = segment_->populate(stopping_, populated_bytes_);
  if (!stopping_.load()) {
    thread_.loop().post([this, complete] { complete ? service_->set_populated() : service_->set_memory_refused(); });
  }
}

void NodeServer::stop() {
  const std::lock_guard lock(mutex_);
  if (!thread_.running()) { return; }
  stopping_.store(true);
  populate_thread_.join();
  thread_.stop([this] { service_->stop(); });
}

std::string NodeServer::status() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->status(std::numeric_limits<std::size_t>::max()); }) : "{}";
}

CounterMap NodeServer::counters() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->counters(); }) : CounterMap{};
}

std::string NodeServer::check_integrity() {
  const std::lock_guard lock(mutex_);
  return service_ ? thread_.ask([this] { return service_->check_integrity(); }) : std::string{};
}

}  // namespace moonpool
