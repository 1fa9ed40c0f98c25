#include "io/directory_service.hpp"

#include <unistd.h>

#include <algorithm>

#include "io/authorize.hpp"
#include "io/clock.hpp"
#include "io/serve.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t tick_ms = 100;
constexpr std::size_t holders_per_reply_max = 64;
constexpr std::size_t holders_located_max = 1'024;

}  // namespace

DirectoryService::DirectoryService(EventLoop& loop, const DirectoryOptions& options)
    : loop_(loop),
      options_(options),
      index_(options.entry_count_max),
      server_(loop, options.identity, options.limits, *this),
      started_ms_(boot_ms()) {}

DirectoryService::~DirectoryService() = default;

void DirectoryService::start() {
  server_.listen();
  loop_.set_tick(tick_ms, [this] { server_.tick(boot_ms()); });
}

void DirectoryService::stop() { server_.close_all(); }

void DirectoryService::admit(Connection& connection) {
  Principal& principal = connection.principal;
  if (principal.role == Role::rail) {
    throw Refusal{Reason::access_denied, "refused_role", "a directory has no bytes to move"};
  }
  const bool same_user = connection.remote || connection.peer.user_id == ::geteuid();
  principal.home_tenant = principal.role == Role::client && same_user;
}

Welcome DirectoryService::welcome(const Connection&) {
  Welcome welcome;
  welcome.warming = warming();
  return welcome;
}

void DirectoryService::admitted(Connection& connection) {
  const Principal& principal = connection.principal;
  if (principal.role != Role::owner) { return; }
  // The same owner before, or whoever served at its address. Names are labels: two nodes may have one.
  std::vector<ConnectionId> replaced;
  // Two hosts may have sockets of one path, so what comes from elsewhere says nothing with one.
  const bool telling = !connection.remote || !principal.tenant.starts_with("unix:");
  for (const auto& [id, holder] : holders_) {
    if ((telling && holder.address == principal.tenant) || holder.incarnation == principal.incarnation) {
      replaced.push_back(id);
    }
  }
  for (const ConnectionId id : replaced) {
    server_.close(
        id, {Reason::wrong_incarnation, "replaced_holder", "another incarnation of '" + principal.name + "' came"});
  }
  Holder holder;
  holder.id = index_.add_holder();
  holder.name = principal.name;
  holder.site = principal.site;
  holder.address = principal.tenant;  // an owner says there where it serves
  holder.incarnation = principal.incarnation;
  holder.last_heard_ms = boot_ms();
  connection_of_[holder.id] = connection.id;
  holders_.emplace(connection.id, std::move(holder));
}

bool DirectoryService::lost(Connection&) { return false; }  // nothing of a connection outlives it here

void DirectoryService::gone(ConnectionId connection) {
  const auto found = holders_.find(connection);
  if (found == holders_.end()) { return; }
  index_.forget(found->second.id);
  connection_of_.erase(found->second.id);
  holders_.erase(found);
}

void DirectoryService::serve(Connection& connection, const Frame& frame) {
  const auto verb = static_cast<MessageType>(frame.header.type);
  if (!authorize(connection.principal, verb, connection.principal.tenant_id)) {
    throw Refusal{Reason::access_denied, "denied_verb",
                  "this verb is not allowed to '" + connection.principal.name + "'"};
  }
  switch (verb) {
    case MessageType::events: return events(connection, frame);
    case MessageType::match: return match(connection, frame);
    case MessageType::locate: return locate(connection, frame);
    case MessageType::describe: return describe(connection, frame);
    case MessageType::stat: return stat(connection, frame);
    case MessageType::ping: return append_empty_frame(connection.stream.output(), reply_header(connection, frame));
    default:
      throw Refusal{Reason::protocol, "malformed_unknown_type",
                    "a directory knows no message type " + std::to_string(frame.header.type)};
  }
}

void DirectoryService::events(Connection& connection, const Frame& frame) {
  const Events message = decoded<Events>(frame);
  Holder& holder = holders_.at(connection.id);
  if (message.incarnation != holder.incarnation) {
    throw Refusal{Reason::wrong_incarnation, "wrong_incarnation", "events of another incarnation"};
  }
  if (message.sequence != holder.next_sequence) {
    throw Refusal{Reason::protocol, "sequence_gap",
                  "event message " + std::to_string(message.sequence) + " came where " +
                      std::to_string(holder.next_sequence) + " was due"};
  }
  ++holder.next_sequence;
  holder.last_heard_ms = boot_ms();
  event_count_ += message.events.size();
  apply(holder, message);
  EventsReply answer;
  answer.sequence = message.sequence;
  reply(connection, frame, answer);
}

void DirectoryService::apply(Holder& holder, const Events& message) {
  if (message.phase == EventsPhase::snapshot_begin) {
    index_.snapshot_begin(holder.id);
    holder.told = false;
  }
  if (!message.events.empty()) { (void)index_.apply(holder.id, message.events); }
  if (message.phase == EventsPhase::snapshot_end) {
    index_.snapshot_end(holder.id);
    holder.told = true;
    ever_told_ = true;
  }
}

bool DirectoryService::warming() const {
  return !ever_told_ ||
         std::any_of(holders_.begin(), holders_.end(), [](const auto& entry) { return !entry.second.told; });
}

HolderInfo DirectoryService::info_of(HolderId id) const {
  const Holder& holder = holders_.at(connection_of_.at(id));
  HolderInfo info;
  info.incarnation = holder.incarnation;
  info.name = holder.name;
  info.site = holder.site;
  info.address = holder.address;
  return info;
}

void DirectoryService::match(Connection& connection, const Frame& frame) {
  const Match request = decoded<Match>(frame);
  ++match_count_;
  const std::uint64_t scoped = scoped_namespace(request.namespace_id, connection.principal.tenant_id);
  const MatchResult found = index_.match(scoped, request.block_hashes, request.groups);
  MatchReply answer;
  answer.warming = warming();
  answer.fetchable_block_count = found.fetchable_block_count;
  for (const HolderMatch& holder : found.holders) {
    if (answer.holders.size() == holders_per_reply_max) { break; }
    HolderInfo info = info_of(holder.holder);
    info.block_count = holder.block_count;
    info.tier_mask = holder.tier_mask;
    answer.holders.push_back(info);
  }
  reply(connection, frame, answer);
}

void DirectoryService::locate(Connection& connection, const Frame& frame) {
  const Locate request = decoded<Locate>(frame);
  ++locate_count_;
  LocateReply answer;
  answer.warming = warming();
  std::unordered_map<HolderId, std::uint16_t> places;
  std::vector<HolderId> holders;
  answer.places.reserve(request.digests.size());
  for (const Digest& digest : request.digests) {
    holders.clear();
    index_.locate(digest, holders);
    std::vector<std::uint16_t>& here = answer.places.emplace_back();
    for (const HolderId holder : holders) {
      const auto [place, is_new] = places.try_emplace(holder, static_cast<std::uint16_t>(answer.holders.size()));
      if (is_new && answer.holders.size() == holders_located_max) {
        places.erase(place);
        break;
      }
      if (is_new) { answer.holders.push_back(info_of(holder)); }
      here.push_back(place->second);
    }
  }
  reply(connection, frame, answer);
}

void DirectoryService::describe(Connection& connection, const Frame& frame) {
  connection.description = decoded<Describe>(frame).document;
  Outcomes answer;
  answer.items.push_back({Status::done, Reason::none});
  reply(connection, frame, answer);
}

void DirectoryService::stat(Connection& connection, const Frame& frame) {
  const std::string document = status(frame_payload_bytes_max / 2);
  StatReply answer;
  answer.document = std::as_bytes(std::span(document));
  reply(connection, frame, answer);
}

}  // namespace moonpool
