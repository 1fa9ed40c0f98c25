#include "io/rail_client.hpp"

#include <stdexcept>

#include "io/rail_driver.hpp"

namespace moonpool {
namespace {

void check(const std::vector<RailOperation>& operations, const RailOrder& order) {
  for (const RailOperation& operation : operations) { check_piece(operation.local); }
  if (order.message.size() > rail_message_bytes_max) {
    throw std::invalid_argument("a message has at most " + std::to_string(rail_message_bytes_max) + " bytes");
  }
}

std::optional<RailVerb> last_of(const RailOrder& order) {
  return order.message.empty() ? std::nullopt : std::optional(RailVerb::message);
}

}  // namespace

RailClient::RailClient(RailOptions options) {
  if (options.routes.empty()) { throw std::invalid_argument("rails need at least one address"); }
  if (options.slice_bytes == 0 || options.slice_bytes > rail_slice_bytes_max) {
    throw std::invalid_argument("a slice has between 1 and " + std::to_string(rail_slice_bytes_max) + " bytes");
  }
  driver_ = std::make_shared<Driver>(std::move(options));
}

RailClient::~RailClient() = default;

RailClient::Connected RailClient::connect(Deadline deadline) { return driver_->connect(deadline); }

std::vector<RailOutcome> RailClient::run(std::span<const RailOperation> operations, const RailOrder& order) {
  std::vector<RailOperation> own(operations.begin(), operations.end());
  check(own, order);
  const auto batch = std::make_shared<RailBatch>(std::move(own), order, last_of(order), std::function<void()>{});
  driver_->run(batch);
  std::vector<RailOutcome> outcomes = batch->outcomes();
  if (!order.message.empty()) { outcomes.push_back({batch->message_reason(), false, 0}); }
  return outcomes;
}

std::shared_ptr<RailTransfer> RailClient::submit(std::vector<RailOperation> operations, RailOrder order,
                                                 std::function<void()> on_done) {
  check(operations, order);
  const std::optional<RailVerb> last = last_of(order);
  const auto batch = std::make_shared<RailBatch>(std::move(operations), std::move(order), last, std::move(on_done));
  driver_->submit(batch);
  return batch;
}

Reason RailClient::probe(Deadline deadline) {
  RailOrder order;
  order.deadline = deadline;
  order.priority = Priority::latency;
  const auto batch =
      std::make_shared<RailBatch>(std::vector<RailOperation>{}, order, RailVerb::probe, std::function<void()>{});
  driver_->run(batch);
  return batch->message_reason();
}

std::vector<RailStatus> RailClient::status() const { return driver_->status(); }

void RailClient::close() { driver_->close(); }

}  // namespace moonpool
