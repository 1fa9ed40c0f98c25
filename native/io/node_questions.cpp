// The verbs that ask about objects or change what is known of them.
#include <algorithm>

#include "core/checksum.hpp"
#include "io/authorize.hpp"
#include "io/clock.hpp"
#include "io/node_service.hpp"
#include "io/serve.hpp"

namespace moonpool {
namespace {

constexpr std::uint32_t list_count_max = 1'024;  // keys of at most 1 KiB: a reply stays below half a frame

Outcome no_longer_current() { return {Status::refused, Reason::wrong_incarnation}; }

}  // namespace

void NodeService::exists(Connection& connection, const Frame& frame) {
  const Keys request = decoded<Keys>(frame);
  const bool current = is_current(request.incarnation);
  const std::uint64_t now_ms = boot_ms();
  ExistsReply answer;
  answer.items.reserve(request.keys.size());
  for (const KeyRef& key : request.keys) {
    HoldResult result;
    if (!current || !populated_) {
      result.reason = current ? Reason::warming : Reason::wrong_incarnation;
    } else if (!fits(connection, key)) {
      result.reason = Reason::access_denied;
    } else {
      result = table_.peek(key.digest, key.key, connection.principal.tenant_id, now_ms);
    }
    answer.items.push_back(result);
  }
  reply(connection, frame, answer);
}

void NodeService::change_keys(Connection& connection, const Frame& frame) {
  const Keys request = decoded<Keys>(frame);
  const bool current = is_current(request.incarnation);
  const std::uint64_t now_ms = boot_ms();
  const std::uint64_t tenant_id = connection.principal.tenant_id;
  Outcomes answer;
  answer.items.reserve(request.keys.size());
  for (const KeyRef& key : request.keys) {
    if (!current) {
      answer.items.push_back(no_longer_current());
    } else if (!fits(connection, key)) {
      answer.items.push_back({Status::miss, Reason::access_denied});
    } else if (frame.header.type == static_cast<std::uint16_t>(MessageType::remove)) {
      answer.items.push_back(table_.remove(key.digest, key.key, tenant_id, Reason::removed, now_ms));
    } else if (frame.header.type == static_cast<std::uint16_t>(MessageType::pin)) {
      answer.items.push_back(table_.pin(key.digest, key.key, tenant_id, now_ms));
    } else {
      answer.items.push_back(table_.unpin(key.digest, key.key, tenant_id));
    }
  }
  reply(connection, frame, answer);
}

void NodeService::why(Connection& connection, const Frame& frame) {
  const Keys request = decoded<Keys>(frame);
  const bool current = is_current(request.incarnation);
  Outcomes answer;
  answer.items.reserve(request.keys.size());
  for (const KeyRef& key : request.keys) {
    if (!current) {
      answer.items.push_back(no_longer_current());
    } else if (!fits(connection, key)) {
      answer.items.push_back({Status::miss, Reason::access_denied});
    } else {
      const HoldResult found = table_.peek(key.digest, key.key, connection.principal.tenant_id, boot_ms());
      const bool unexplained = found.status != Status::hit && found.reason == Reason::none;
      answer.items.push_back({found.status, unexplained ? table_.why(key.digest) : found.reason});
    }
  }
  reply(connection, frame, answer);
}

// A reader says that bytes did not fit their checksum. The node looks itself and believes only that.
void NodeService::damaged(Connection& connection, const Frame& frame) {
  const Keys request = decoded<Keys>(frame);
  const bool current = is_current(request.incarnation);
  const std::uint64_t now_ms = boot_ms();
  Outcomes answer;
  for (const KeyRef& key : request.keys) {
    Outcome outcome = no_longer_current();
    if (current) {
      const HoldResult found = table_.peek(key.digest, key.key, connection.principal.tenant_id, now_ms);
      outcome = {found.status, found.reason};
      if (found.status == Status::hit && crc32c(segment_.value(found.extent)) != found.checksum) {
        outcome = table_.remove(key.digest, key.key, connection.principal.tenant_id, Reason::damaged, now_ms);
      }
    }
    answer.items.push_back(outcome);
  }
  reply(connection, frame, answer);
}

void NodeService::clear(Connection& connection, const Frame& frame) {
  const Clear request = decoded<Clear>(frame);
  const std::uint64_t whose = request.namespace_id == 0 ? every_tenant : connection.principal.tenant_id;
  ClearReply answer;
  if (!authorize(connection.principal, MessageType::clear, whose)) {
    throw Refusal{Reason::access_denied, "denied_clear", "this tenant may clear its own namespaces only"};
  }
  if (is_current(request.incarnation)) {
    answer.object_count =
        table_.clear(scoped_namespace(request.namespace_id, connection.principal.tenant_id), boot_ms());
  }
  reply(connection, frame, answer);
}

void NodeService::list(Connection& connection, const Frame& frame) {
  const List request = decoded<List>(frame);
  const std::uint64_t tenant_id = connection.principal.tenant_id;
  ListReply answer;
  const std::uint32_t count = std::clamp(request.count, 1U, list_count_max);
  answer.cursor = table_.list(tenant_id, request.prefix, request.cursor, count, boot_ms(), answer.items);
  for (ObjectTable::Listed& item : answer.items) {
    item.tag.namespace_id = scoped_namespace(item.tag.namespace_id, tenant_id);
  }
  reply(connection, frame, answer);
}

void NodeService::match(Connection& connection, const Frame& frame) {
  const Match request = decoded<Match>(frame);
  const std::uint64_t scoped = scoped_namespace(request.namespace_id, connection.principal.tenant_id);
  MatchReply answer;
  answer.warming = !populated_;
  const MatchResult found = index_.match(scoped, request.block_hashes, request.groups);
  answer.fetchable_block_count = found.fetchable_block_count;
  for (const HolderMatch& holder : found.holders) {
    HolderInfo info;
    info.incarnation = options_.identity.incarnation;
    info.name = options_.identity.name;
    info.site = options_.identity.site;
    info.address = serving_address_;
    info.block_count = holder.block_count;
    info.tier_mask = holder.tier_mask;
    answer.holders.push_back(info);
  }
  reply(connection, frame, answer);
}

void NodeService::describe(Connection& connection, const Frame& frame) {
  connection.description = decoded<Describe>(frame).document;
  Outcomes answer;
  answer.items.push_back({Status::done, Reason::none});
  reply(connection, frame, answer);
}

void NodeService::stat(Connection& connection, const Frame& frame) {
  const std::string document = status(frame_payload_bytes_max / 2);
  StatReply answer;
  answer.document = std::as_bytes(std::span(document));
  reply(connection, frame, answer);
}

void NodeService::arena(Connection& connection, const Frame& frame) {
  const ArenaRequest request = decoded<ArenaRequest>(frame);
  const std::vector<std::uint64_t> sizes = segment_.arena_bytes();
  ArenaReply answer;
  if (request.arena_index == catalogue_arena && !request.writable) {
    answer.outcome = {Status::done, Reason::none};
    answer.bytes = catalogue_.byte_count();
    connection.stream.attach(catalogue_.lend());
  } else if (request.arena_index >= sizes.size()) {
    answer.outcome = {Status::refused, Reason::bad_request};
  } else {
    answer.outcome = {Status::done, Reason::none};
    answer.bytes = sizes[request.arena_index];
    connection.stream.attach(segment_.lend(request.arena_index, request.writable));
  }
  reply(connection, frame, answer);
}

}  // namespace moonpool
