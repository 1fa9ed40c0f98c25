// Reads on the node's own host that need no message: the catalogue says where a value lies, the copy is checked
// against its checksum, and the header's generation afterwards shows that it was that value all the time.
#pragma once

#include "io/node_client.hpp"

namespace moonpool {

class DirectReader {
 public:
  // Reads for one call. Not usable where the peer is gone or lends this process no memory.
  DirectReader(Session& session, const SipKey& secret, Deadline deadline);
  // Tells the node what was used.
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;
  DirectReader(DirectReader&&) = delete;
  DirectReader& operator=(DirectReader&&) = delete;
  [[nodiscard]] bool usable() const { return catalogue_ != nullptr; }

  // Brings what find() and copy() look at first into the processor's caches, for a batch of keys.
  void prepare(std::span<const std::string_view> keys);
  // Both take the key's place in the batch that was prepared. False: ask the node, item is untouched. (A copy that
  // failed may have changed its pieces.)
  [[nodiscard]] bool find(std::size_t index, KeyRead& item);
  [[nodiscard]] bool copy(std::size_t index, std::span<const Piece> pieces, std::uint64_t length, KeyRead& item);

 private:
  Session& session_;
  const SipKey& secret_;
  Deadline deadline_;
  std::shared_ptr<Mapping> catalogue_;
  std::vector<Digest> digests_;
  std::vector<Generation> used_;
};

// Whether the value that was found at this extent is there still, or again is not: true after a copy means that
// every byte of it was the value's.
[[nodiscard]] bool is_still_there(const Mapping& mapping, const Extent& extent, Generation generation);

}  // namespace moonpool
