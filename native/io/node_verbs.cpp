// The verbs that touch objects: put and get in all their steps.
#include <algorithm>
#include <cstring>

#include "core/checksum.hpp"
#include "core/siphash.hpp"
#include "io/authorize.hpp"
#include "io/clock.hpp"
#include "io/node_service.hpp"
#include "io/serve.hpp"

namespace moonpool {
namespace {

constexpr std::uint32_t read_bytes_max = 2U << 20U;  // of one reply

ReserveResult refused(Reason reason) {
  ReserveResult result;
  result.status = Status::refused;
  result.reason = reason;
  return result;
}

HoldResult missed(Reason reason) {
  HoldResult result;
  result.status = Status::miss;
  result.reason = reason;
  return result;
}

std::size_t index_of(Reason reason) { return std::min<std::size_t>(static_cast<std::size_t>(reason), 31); }

}  // namespace

bool NodeService::is_current(std::uint64_t incarnation) {
  if (incarnation == options_.identity.incarnation) { return true; }
  server_.count("wrong_incarnation");
  return false;
}

bool NodeService::fits(const Connection& connection, const KeyRef& key) {
  if (connection.principal.home_tenant ||
      key.digest == key_digest(options_.identity.secret, connection.principal.tenant_id, key.key)) {
    return true;
  }
  server_.count("denied_digest");
  return false;
}

void NodeService::count_read(Connection& connection, const HoldResult& result) {
  if (result.status == Status::hit) {
    ++connection.traffic.hit;
    connection.traffic.read_bytes += result.extent.length;
    read_bytes_ += result.extent.length;
  } else {
    ++connection.traffic.miss;
    ++misses_[index_of(result.reason)];
  }
}

void NodeService::count_refused(Connection& connection, const ReserveResult& result) {
  if (result.status == Status::refused) {
    ++connection.traffic.refused;
    ++refusals_[index_of(result.reason)];
  }
}

ReserveResult NodeService::reserve_one(const Connection& connection, PutSpec& spec, std::uint32_t arena_preferred) {
  if (!populated_) { return refused(Reason::warming); }
  if (!fits(connection, {spec.digest, spec.key})) { return refused(Reason::access_denied); }
  spec.tenant_id = connection.principal.tenant_id;
  spec.tag.namespace_id = scoped_namespace(spec.tag.namespace_id, spec.tenant_id);
  const ReserveResult result = table_.reserve(spec, connection.id, arena_preferred, boot_ms());
  invalidate_freed();  // before the header is written: what was freed may lie where it goes
  if (result.status == Status::stored) { segment_.write_header(result.extent, result.generation, spec.digest); }
  return result;
}

void NodeService::reserve(Connection& connection, const Frame& frame) {
  Reserve request = decoded<Reserve>(frame);
  const bool current = is_current(request.incarnation);
  ReserveReply answer;
  answer.items.reserve(request.items.size());
  for (PutSpec& spec : request.items) {
    answer.items.push_back(current ? reserve_one(connection, spec, request.arena_preferred)
                                   : refused(Reason::wrong_incarnation));
    count_refused(connection, answer.items.back());
  }
  if (connection.remote) { grant_reservations(connection, answer); }
  reply(connection, frame, answer);
}

ReserveResult NodeService::commit_one(Connection& connection, const CommitItem& item) {
  const ReserveResult result = table_.commit(connection.id, item.generation, item.checksum, boot_ms());
  if (result.status == Status::stored) {
    segment_.write_checksum(result.extent, item.checksum);
    stored_bytes_ += result.extent.length;
    ++connection.traffic.stored;
    connection.traffic.written_bytes += result.extent.length;
  }
  count_refused(connection, result);
  return result;
}

void NodeService::commit(Connection& connection, const Frame& frame) {
  const Commit request = decoded<Commit>(frame);
  const bool current = is_current(request.incarnation);
  ReserveReply answer;
  answer.items.reserve(request.items.size());
  for (const CommitItem& item : request.items) {
    if (!current) {
      answer.items.push_back(refused(Reason::wrong_incarnation));
    } else if (connection.remote && !end_grant(connection, item.generation)) {
      answer.items.push_back(refused(Reason::not_yours));  // or a rail of its own still writes there
    } else {
      answer.items.push_back(commit_one(connection, item));
    }
  }
  reply(connection, frame, answer);
}

void NodeService::abort(Connection& connection, const Frame& frame) {
  const Abort request = decoded<Abort>(frame);
  const bool current = is_current(request.incarnation);
  Outcomes answer;
  answer.items.reserve(request.generations.size());
  for (const Generation generation : request.generations) {
    if (!current) {
      answer.items.push_back({Status::refused, Reason::wrong_incarnation});
    } else if (connection.remote && !end_grant(connection, generation)) {
      answer.items.push_back({Status::refused, Reason::not_yours});
    } else {
      answer.items.push_back(table_.abort(connection.id, generation));
    }
  }
  reply(connection, frame, answer);
}

ReserveResult NodeService::put_one(Connection& connection, InlineItem& item) {
  if (item.spec.length != item.value.size()) { return refused(Reason::wrong_length); }
  const ReserveResult reserved = reserve_one(connection, item.spec, connection.id);
  if (reserved.status != Status::stored) {
    count_refused(connection, reserved);
    return reserved;
  }
  if (copy_crc32c(segment_.mutable_value(reserved.extent), item.value) != item.checksum) {
    (void)table_.abort(connection.id, reserved.generation);
    return refused(Reason::damaged);
  }
  return commit_one(connection, {reserved.generation, item.checksum});
}

void NodeService::put_inline(Connection& connection, const Frame& frame) {
  PutInline request = decoded<PutInline>(frame);
  const bool current = is_current(request.incarnation);
  ReserveReply answer;
  answer.items.reserve(request.items.size());
  for (InlineItem& item : request.items) {
    answer.items.push_back(current ? put_one(connection, item) : refused(Reason::wrong_incarnation));
  }
  reply(connection, frame, answer);
}

void NodeService::write(Connection& connection, const Frame& frame) {
  const Write request = decoded<Write>(frame);
  Outcome outcome{Status::refused, Reason::wrong_incarnation};
  if (is_current(request.incarnation)) {
    const ReserveResult reserved = table_.reserved(connection.id, request.generation);
    const std::uint64_t length = reserved.extent.length;
    if (reserved.status != Status::stored) {
      outcome = {Status::refused, reserved.reason};
    } else if (request.offset > length || request.bytes.size() > length - request.offset) {
      server_.count("denied_range");
      outcome = {Status::refused, Reason::bad_request};
    } else {
      const MutableBytes target = segment_.mutable_value(reserved.extent).subspan(request.offset, request.bytes.size());
      std::memcpy(target.data(), request.bytes.data(), request.bytes.size());
      outcome = {Status::done, Reason::none};
    }
  }
  Outcomes answer;
  answer.items.push_back(outcome);
  reply(connection, frame, answer);
}

void NodeService::hold(Connection& connection, const Frame& frame) {
  const Hold request = decoded<Hold>(frame);
  const bool current = is_current(request.incarnation);
  const std::uint64_t now_ms = boot_ms();
  const std::uint64_t deadline_ms =
      request.view || connection.remote
          ? 0
          : now_ms + std::min<std::uint64_t>(std::max(request.deadline_ms, 1U), options_.limits.copy_hold_ms);
  HoldReply answer;
  answer.items.reserve(request.keys.size());
  for (const KeyRef& key : request.keys) {
    if (!current) {
      answer.items.push_back(missed(Reason::wrong_incarnation));
    } else if (!populated_) {
      answer.items.push_back(missed(Reason::warming));
    } else if (!fits(connection, key)) {
      answer.items.push_back(missed(Reason::access_denied));
    } else {
      answer.items.push_back(
          table_.hold(key.digest, key.key, connection.principal.tenant_id, connection.id, deadline_ms, now_ms));
    }
    count_read(connection, answer.items.back());
  }
  if (connection.remote) { grant_holds(connection, request, answer); }
  reply(connection, frame, answer);
}

void NodeService::release(Connection& connection, const Frame& frame) {
  const Release request = decoded<Release>(frame);
  if (!is_current(request.incarnation)) { return; }
  for (const Generation generation : request.generations) {
    if (connection.remote && !end_grant(connection, generation)) { continue; }
    if (table_.release(connection.id, generation).status != Status::done) { server_.count("released_late"); }
  }
}

// Read by way of the catalogue. What went out of sight since was read all the same.
void NodeService::touched(Connection& connection, const Frame& frame) {
  const Release request = decoded<Release>(frame);
  if (!is_current(request.incarnation)) { return; }
  for (const Generation generation : request.generations) {
    const HoldResult found = table_.touch(generation, connection.principal.tenant_id);
    if (found.status == Status::hit) { count_read(connection, found); }
  }
}

void NodeService::read(Connection& connection, const Frame& frame) {
  const Read request = decoded<Read>(frame);
  ReadReply answer;
  answer.outcome = {Status::miss, Reason::wrong_incarnation};
  if (is_current(request.incarnation)) {
    const HoldResult held = table_.held(connection.id, request.generation);
    const std::uint64_t length = held.extent.length;
    if (held.status != Status::hit) {
      answer.outcome = {Status::miss, held.reason};
    } else if (request.length > read_bytes_max || request.offset > length || request.length > length - request.offset) {
      server_.count("denied_range");
      answer.outcome = {Status::miss, Reason::bad_request};
    } else {
      answer.outcome = {Status::hit, Reason::none};
      answer.bytes = segment_.value(held.extent).subspan(request.offset, request.length);
    }
  }
  reply(connection, frame, answer);
}

}  // namespace moonpool
