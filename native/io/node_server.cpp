#include "io/node_server.hpp"

#include <stdexcept>

#include "io/handshake.hpp"
#include "io/loop_call.hpp"

namespace moonpool {

NodeServer::NodeServer(NodeOptions options) : options_(std::move(options)) {
  options_.identity.incarnation = random_u64();
}

NodeServer::~NodeServer() { stop(); }

void NodeServer::start() {
  const std::lock_guard lock(mutex_);
  if (started_) { throw std::logic_error("a node server starts once"); }
  segment_ = std::make_unique<Segment>(options_.identity.name, options_.segment_bytes, options_.arena_bytes);
  service_ = std::make_unique<NodeService>(loop_, options_, *segment_);
  service_->start();
  started_ = true;
  loop_thread_ = std::thread([this] { loop_.run(); });
  populate_thread_ = std::thread([this] { populate(); });
}

void NodeServer::populate() {
  const bool complete = segment_->populate(stopping_, populated_bytes_);
  if (!stopping_.load()) {
    loop_.post([this, complete] { complete ? service_->set_populated() : service_->set_memory_refused(); });
  }
}

void NodeServer::stop() {
  const std::lock_guard lock(mutex_);
  if (!loop_thread_.joinable()) { return; }
  stopping_.store(true);
  populate_thread_.join();
  loop_.post([this] { service_->stop(); });
  loop_.stop();
  loop_thread_.join();
}

std::string NodeServer::status() {
  const std::lock_guard lock(mutex_);
  if (!service_) { return "{}"; }
  const auto ask = [this] { return service_->status(std::numeric_limits<std::size_t>::max()); };
  return loop_thread_.joinable() ? call_in_loop(loop_, ask) : ask();
}

CounterMap NodeServer::counters() {
  const std::lock_guard lock(mutex_);
  if (!service_) { return {}; }
  const auto ask = [this] { return service_->counters(); };
  return loop_thread_.joinable() ? call_in_loop(loop_, ask) : ask();
}

std::string NodeServer::check_integrity() {
  const std::lock_guard lock(mutex_);
  if (!service_) { return {}; }
  const auto ask = [this] { return service_->check_integrity(); };
  return loop_thread_.joinable() ? call_in_loop(loop_, ask) : ask();
}

}  // namespace moonpool
