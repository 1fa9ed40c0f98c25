#include "io/directory_client.hpp"

#include <stdexcept>

#include "io/batch.hpp"

namespace moonpool {
namespace {

bool append_places(const LocateReply& reply, std::size_t key_count, std::vector<std::vector<Located>>& into) {
  if (reply.places.size() != key_count) { return false; }
  for (const std::vector<std::uint16_t>& places : reply.places) {
    std::vector<Located>& here = into.emplace_back();
    for (const std::uint16_t place : places) {
      if (place >= reply.holders.size()) { return false; }
      const HolderInfo& holder = reply.holders[place];
      here.push_back({std::string(holder.name), holder.incarnation, std::string(holder.address)});
    }
  }
  return true;
}

}  // namespace

std::optional<std::vector<std::vector<Located>>> DirectoryClient::locate(std::span<const std::string_view> keys,
                                                                         Deadline deadline) {
  for (const std::string_view key : keys) {
    if (key.empty() || key.size() > key_bytes_max) {
      throw std::invalid_argument("a key has between 1 and " + std::to_string(key_bytes_max) + " bytes");
    }
  }
  const Session::Opened opened = peer_.session(deadline);
  if (!opened.session) { return std::nullopt; }
  std::vector<std::vector<Located>> result;
  result.reserve(keys.size());
  while (!keys.empty()) {
    const auto window = keys.first(std::min(keys.size(), window_count_max));
    keys = keys.subspan(window.size());
    Locate message;
    message.digests.reserve(window.size());
    for (const std::string_view key : window) {
      message.digests.push_back(key_ref(peer_, *opened.session, key).digest);
    }
    const Answer answer = peer_.call(*opened.session, MessageType::locate, message, deadline);
    const std::optional<LocateReply> reply = decoded<LocateReply>(answer);
    if (!reply || !append_places(*reply, window.size(), result)) { return std::nullopt; }
  }
  return result;
}

}  // namespace moonpool
