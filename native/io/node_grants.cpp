// What remote connections may touch over rails, and when it is over.
#include <algorithm>

#include "io/clock.hpp"
#include "io/node_service.hpp"

namespace moonpool {

void NodeService::take_rail(ProvenRail rail) { rails_.take(std::move(rail)); }

// Where things lie is nobody's business who cannot map them: a token says it.
void NodeService::grant_holds(const Connection& connection, const Hold& request, HoldReply& answer) {
  const std::uint64_t limit_ms =
      std::min<std::uint64_t>(std::max(request.deadline_ms, 1U), options_.limits.copy_hold_ms);
  answer.grants.reserve(answer.items.size());
  for (HoldResult& item : answer.items) {
    Digest token;
    if (item.status == Status::hit) {
      token = grants_.give({connection.id, item.generation, segment_.mutable_value(item.extent), false,
                            request.view ? 0 : boot_ms() + limit_ms});
      item.extent = {0, 0, item.extent.length};
    }
    answer.grants.push_back(token);
  }
}

void NodeService::grant_reservations(const Connection& connection, ReserveReply& answer) {
  answer.grants.reserve(answer.items.size());
  for (ReserveResult& item : answer.items) {
    Digest token;
    if (item.status == Status::stored) {
      token = grants_.give({connection.id, item.generation, segment_.mutable_value(item.extent), true, 0});
      item.extent = {0, 0, item.extent.length};
    }
    answer.grants.push_back(token);
  }
}

bool NodeService::end_grant(const Connection& connection, Generation generation) {
  switch (grants_.end(connection.id, generation)) {
    case Grants::Ending::shared:
    case Grants::Ending::free: return true;
    case Grants::Ending::busy: server_.count("grants_busy"); return false;
    case Grants::Ending::unknown: server_.count("grants_unknown"); return false;
  }
  return false;
}

void NodeService::end_expired_grants(std::uint64_t now_ms) {
  for (const Grants::Vacated& expired : grants_.take_expired(now_ms)) {
    server_.count("grants_expired");
    let_go(expired);
  }
}

// In the loop, after a rail thread said so.
void NodeService::settle_vacated() {
  for (const Grants::Vacated& vacated : grants_.take_vacated()) {
    if (leaving_.contains(vacated.connection)) {
      drop_leaving(vacated.connection);
    } else {
      let_go(vacated);
    }
  }
  settle();
}

void NodeService::let_go(const Grants::Vacated& vacated) {
  if (vacated.write) {
    (void)table_.abort(vacated.connection, vacated.generation);
    return;
  }
  for (std::uint32_t use = 0; use < vacated.use_count; ++use) {
    (void)table_.release(vacated.connection, vacated.generation);
  }
}

void NodeService::drop_leaving(ConnectionId connection) {
  if (grants_.busy(connection)) { return; }
  leaving_.erase(connection);
  table_.drop_connection(connection);
}

}  // namespace moonpool
