#include "io/node_client.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/checksum.hpp"
#include "io/batch.hpp"
#include "io/node_direct.hpp"

namespace moonpool {

Values make_values(std::vector<std::string_view> keys, std::vector<Piece> pieces,
                   std::span<const std::uint64_t> piece_counts) {
  Values values;
  if (!piece_counts.empty() && piece_counts.size() != keys.size()) {
    throw std::invalid_argument("as many piece counts as keys are needed");
  }
  std::size_t end = 0;
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const std::uint64_t count = piece_counts.empty() ? 1 : piece_counts[index];
    if (keys[index].empty()) { throw std::invalid_argument("a key is empty"); }
    if (count == 0 || count > pieces.size() - end) {
      throw std::invalid_argument("the pieces do not add up: key " + std::to_string(index) + " has " +
                                  std::to_string(count) + " of " + std::to_string(pieces.size() - end) + " left");
    }
    std::uint64_t length = 0;
    for (const std::size_t last = end + count; end < last; ++end) {
      check_piece(pieces[end]);
      if (__builtin_add_overflow(length, pieces[end].length, &length)) {
        throw std::invalid_argument("a value is longer than the address space");
      }
    }
    values.piece_ends.push_back(end);
    values.lengths.push_back(length);
  }
  if (end != pieces.size()) {
    throw std::invalid_argument("the pieces do not add up: " + std::to_string(pieces.size() - end) +
                                " belong to no key");
  }
  values.keys = std::move(keys);
  values.pieces = std::move(pieces);
  return values;
}

void check_disjoint(const Values& values) {
  const auto by_address = [](const Piece& left, const Piece& right) { return left.address < right.address; };
  std::vector<Piece> sorted;
  std::span<const Piece> pieces = values.pieces;
  if (!std::is_sorted(pieces.begin(), pieces.end(), by_address)) {
    sorted = values.pieces;
    std::sort(sorted.begin(), sorted.end(), by_address);
    pieces = sorted;
  }
  for (std::size_t index = 1; index < pieces.size(); ++index) {
    if (pieces[index].address - pieces[index - 1].address < pieces[index - 1].length) {
      throw std::invalid_argument("two pieces overlap");
    }
  }
}

HeldBytes::HeldBytes(std::shared_ptr<Session> session, std::shared_ptr<Mapping> mapping, ConstBytes bytes,
                     const KeyRead& item)
    : session_(std::move(session)),
      mapping_(std::move(mapping)),
      bytes_(bytes),
      checksum_(item.checksum),
      generation_(item.generation) {}

HeldBytes::HeldBytes(std::vector<std::byte> copy, const KeyRead& item)
    : copy_(std::move(copy)), bytes_(copy_), checksum_(item.checksum), generation_(item.generation) {}

HeldBytes::~HeldBytes() {
  if (session_) { session_->release(std::span(&generation_, 1)); }
}

bool HeldBytes::verify() const { return crc32c(bytes_) == checksum_; }

NodeClient::NodeClient(PeerOptions options, bool shared_memory, std::uint32_t rail_count)
    : peer_(std::move(options)), rails_(peer_.options(), rail_count), shared_memory_(shared_memory) {}

ReadReport NodeClient::ask_about(MessageType verb, std::span<const std::string_view> keys, Deadline deadline) {
  ReadReport report;
  report.items.resize(keys.size());
  const Session::Opened opened = peer_.session(deadline);
  if (verb == MessageType::exists && opened.session && uses_shared_memory(*opened.session)) {
    find_directly(*opened.session, {keys, {}, deadline}, report);
  }
  std::vector<std::size_t> waiting;
  for (std::size_t index = 0; index < keys.size(); ++index) {
    if (keys[index].size() > key_bytes_max) {
      report.items[index].reason = Reason::key_too_long;
    } else if (report.items[index].status != Status::hit) {
      waiting.push_back(index);
    }
  }
  Reason failure = opened.reason;
  Windows windows(std::move(waiting));
  while (!windows.empty()) {
    const auto window =
        windows.take([&](std::size_t index) { return std::pair(item_bytes + keys[index].size(), std::uint64_t{0}); });
    if (failure == Reason::none) { failure = ask_window(*opened.session, verb, {keys, window, deadline}, report); }
    for (const std::size_t index : window) {
      if (failure != Reason::none) { report.items[index].reason = failure; }
    }
  }
  return report;
}

void NodeClient::find_directly(Session& session, const Question& question, ReadReport& report) {
  DirectReader reader(session, peer_.options().secret, question.deadline);
  if (!reader.usable()) { return; }
  reader.prepare(question.keys);
  for (std::size_t index = 0; index < question.keys.size(); ++index) { (void)reader.find(index, report.items[index]); }
}

Reason NodeClient::ask_window(Session& session, MessageType verb, const Question& question, ReadReport& report) {
  Keys message;
  message.incarnation = session.info().incarnation;
  message.keys.reserve(question.window.size());
  for (const std::size_t index : question.window) {
    message.keys.push_back(key_ref(peer_, session, question.keys[index]));
  }
  const Answer answer = peer_.call(session, verb, message, question.deadline);
  if (verb == MessageType::exists) {
    const std::optional<ExistsReply> reply = decoded<ExistsReply>(answer);
    if (!reply || reply->items.size() != question.window.size()) { return reason_of(answer); }
    for (std::size_t at = 0; at < question.window.size(); ++at) {
      const HoldResult& item = reply->items[at];
      report.items[question.window[at]] = {item.status, item.reason, item.extent.length, item.checksum,
                                           item.generation};
    }
    return Reason::none;
  }
  const std::optional<Outcomes> reply = decoded<Outcomes>(answer);
  if (!reply || reply->items.size() != question.window.size()) { return reason_of(answer); }
  for (std::size_t at = 0; at < question.window.size(); ++at) {
    report.items[question.window[at]].status = reply->items[at].status;
    report.items[question.window[at]].reason = reply->items[at].reason;
  }
  return Reason::none;
}

std::optional<std::uint64_t> NodeClient::clear(std::uint64_t namespace_id, Deadline deadline) {
  const Session::Opened opened = peer_.session(deadline);
  if (!opened.session) { return std::nullopt; }
  const Clear message{opened.session->info().incarnation, namespace_id};
  const std::optional<ClearReply> reply =
      decoded<ClearReply>(peer_.call(*opened.session, MessageType::clear, message, deadline));
  return reply ? std::optional(reply->object_count) : std::nullopt;
}

Listing NodeClient::list(std::string_view prefix, std::uint64_t cursor, std::uint32_t count, Deadline deadline) {
  Listing listing;
  const List message{cursor, count, prefix};
  if (std::optional<ListReply> reply = decoded<ListReply>(peer_.ask(MessageType::list, message, deadline))) {
    listing.cursor = reply->cursor;
    listing.items = std::move(reply->items);
  }
  return listing;
}

MatchReport match_at(PeerClient& peer, const Match& question, Deadline deadline) {
  MatchReport report;
  const Answer answer = peer.ask(MessageType::match, question, deadline);
  const std::optional<MatchReply> reply = decoded<MatchReply>(answer);
  if (!reply) { return report; }
  report.reachable = true;
  report.warming = reply->warming;
  report.fetchable = reply->fetchable_block_count;
  for (const HolderInfo& holder : reply->holders) {
    report.holders.push_back({std::string(holder.name), holder.incarnation, holder.block_count, holder.tier_mask});
  }
  return report;
}

std::optional<std::string> stat_at(PeerClient& peer, Deadline deadline) {
  const Answer answer = peer.ask_empty(MessageType::stat, deadline);
  const std::optional<StatReply> reply = decoded<StatReply>(answer);
  if (!reply) { return std::nullopt; }
  std::string document(reply->document.size(), ' ');
  std::transform(reply->document.begin(), reply->document.end(), document.begin(),
                 [](std::byte byte) { return static_cast<char>(byte); });
  return document;
}

}  // namespace moonpool
