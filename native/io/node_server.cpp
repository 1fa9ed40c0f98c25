#include "io/node_server.hpp"

#include <stdexcept>

#include "io/handshake.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t spin_us_max = 200;  // the commit of a mebibyte comes that soon after its reservation

}  // namespace

NodeServer::NodeServer(NodeOptions options) : options_(std::move(options)) {
  options_.identity.incarnation = random_u64();
}

NodeServer::~NodeServer() {
  if (of_this_process()) {
    stop();
    discard();
    return;
  }
  abandon();
  if (populate_thread_.joinable()) { populate_thread_.detach(); }
  (void)segment_.release();
}

void NodeServer::start() {
  const std::lock_guard lock(mutex());
  if (started()) { throw std::logic_error("a node server starts once"); }
  check_free(options_.identity.path);  // before memory is asked for
  segment_ = std::make_unique<Segment>(options_.identity.name, options_.segment_bytes, options_.arena_bytes);
  loop().set_spin(spin_us_max);
  run(std::make_unique<NodeService>(loop(), options_, *segment_, populated_bytes_));
  populate_thread_ = quiet_thread([this] { populate(); });
}

void NodeServer::populate() {
  const bool complete = segment_->populate(stopping_, populated_bytes_);
  if (!stopping_.load()) {
    loop().post([this, complete] { complete ? service().set_populated() : service().set_memory_refused(); });
  }
}

void NodeServer::stop() {
  const std::lock_guard lock(mutex());
  if (!running()) { return; }
  stopping_.store(true);
  populate_thread_.join();
  end();
}

}  // namespace moonpool
