#include "bind/peer_face.hpp"

#include <nanobind/stl/tuple.h>

namespace nb = nanobind;

namespace moonpool {

PeerOptions peer_options(const PeerArguments& arguments) {
  PeerOptions options;
  options.address = parse_peer_address(arguments.path);
  options.secret = secret_from(text_of(arguments.secret));
  options.tenant = arguments.tenant;
  options.name = arguments.name;
  options.connect_timeout_ms = arguments.connect_timeout_ms;
  if (options.tenant.empty() || options.tenant.size() > label_bytes_max || options.name.size() > label_bytes_max) {
    throw nb::value_error("tenant and name have at most 255 bytes, and a tenant at least one");
  }
  return options;
}

std::vector<TcpAddress> listen_addresses(const std::vector<std::string>& texts) {
  std::vector<TcpAddress> addresses;
  for (const std::string& text : texts) {
    const std::optional<TcpAddress> address = parse_tcp_address(text);
    if (!address) { throw nb::value_error(("'" + text + "' is no host:port to listen at").c_str()); }
    addresses.push_back(*address);
  }
  return addresses;
}

nb::tuple connect_face(PeerClient& peer, std::uint64_t timeout_ms) {
  Session::Opened opened;
  {
    const nb::gil_scoped_release unlocked;
    opened = peer.connect(timeout_ms);
  }
  return nb::make_tuple(static_cast<unsigned>(opened.reason), nb::str(opened.message.data(), opened.message.size()));
}

nb::dict info_face(PeerClient& peer, const char* transport) {
  nb::dict info;
  const std::shared_ptr<Session> session = peer.last_session();
  const SessionInfo none;
  const SessionInfo& known = session ? session->info() : none;
  nb::list arenas;
  for (const std::uint64_t bytes : known.arena_bytes) { arenas.append(bytes); }
  info["incarnation"] = known.incarnation;
  info["node"] = known.node_name;
  info["site"] = known.site;
  info["address"] = known.address;
  info["shared_memory"] = known.shared_memory;
  info["connection"] = known.connection;
  info["tenant_id"] = known.tenant_id;
  info["arena_bytes"] = arenas;
  info["transport"] = transport;
  info["reconnect_count"] = peer.reconnect_count();
  return info;
}

Match match_question(std::uint64_t namespace_id, nb::handle block_hashes, nb::handle groups) {
  Match question;
  question.namespace_id = namespace_id;
  question.block_hashes = Numbers(block_hashes, "block_hashes").copy();
  if (namespace_id == 0) { throw nb::value_error("namespace_id 0 means no tag"); }
  if (question.block_hashes.size() > batch_count_max) {
    throw nb::value_error("block_hashes: too many for one question");
  }
  for (const nb::handle item : groups) {
    std::tuple<std::uint16_t, std::uint16_t, std::uint32_t> rule;
    if (!nb::try_cast(item, rule)) {
      throw nb::value_error("groups: a rule is (kv_group, shard_count, window_block_count), each in its bounds");
    }
    const auto [kv_group, shard_count, window_block_count] = rule;
    if (shard_count == 0) { throw nb::value_error("groups: a shard count of 0"); }
    question.groups.push_back({kv_group, shard_count, window_block_count});
  }
  if (question.groups.empty() || question.groups.size() > group_count_max) {
    throw nb::value_error("groups: between 1 and 64 are needed");
  }
  return question;
}

MatchOutcome match_face(PeerClient& peer, const Match& question, std::uint64_t timeout_ms) {
  MatchReport report;
  {
    const nb::gil_scoped_release unlocked;
    report = match_at(peer, question, Deadline::after_ms(timeout_ms));
  }
  return outcome_of(report);
}

nb::object stat_face(PeerClient& peer, std::uint64_t timeout_ms) {
  std::optional<std::string> document;
  {
    const nb::gil_scoped_release unlocked;
    document = stat_at(peer, Deadline::after_ms(timeout_ms));
  }
  return document ? nb::object(nb::str(document->data(), document->size())) : nb::none();
}

bool ping_face(PeerClient& peer, std::uint64_t timeout_ms) {
  const nb::gil_scoped_release unlocked;
  return peer.ask_empty(MessageType::ping, Deadline::after_ms(timeout_ms)).reason == Reason::none;
}

}  // namespace moonpool
