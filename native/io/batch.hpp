// How many keys of a batch go into one message, and their digests.
#pragma once

#include "core/frame.hpp"
#include "core/siphash.hpp"
#include "io/node_client.hpp"

namespace moonpool {

inline constexpr std::size_t message_bytes_max = frame_payload_bytes_max - (64U << 10U);
inline constexpr std::size_t item_bytes = 160;  // of one key's fields in any message, beside the key
inline constexpr std::uint64_t window_value_bytes = 64ULL << 20U;  // values held or reserved at a time by one batch
inline constexpr std::size_t window_count_max = 4'096;

// Takes the next indexes of `waiting` that fit one message and one window; at least one.
class Windows {
 public:
  explicit Windows(std::vector<std::size_t> waiting) : waiting_(std::move(waiting)) {}
  [[nodiscard]] bool empty() const { return next_ == waiting_.size(); }
  template <class BytesOf>  // BytesOf(index) → (bytes in the message, bytes of the value)
  [[nodiscard]] std::span<const std::size_t> take(BytesOf bytes_of) {
    std::size_t message_bytes = 0;
    std::uint64_t value_bytes = 0;
    const std::size_t begin = next_;
    while (next_ < waiting_.size() && next_ - begin < window_count_max) {
      const auto [in_message, in_value] = bytes_of(waiting_[next_]);
      message_bytes += in_message;
      value_bytes += in_value;
      if (next_ > begin && (message_bytes > message_bytes_max || value_bytes > window_value_bytes)) { break; }
      ++next_;
    }
    return std::span(waiting_).subspan(begin, next_ - begin);
  }

 private:
  std::vector<std::size_t> waiting_;
  std::size_t next_ = 0;
};

[[nodiscard]] inline KeyRef key_ref(const PeerClient& peer, const Session& session, std::string_view key) {
  return {key_digest(peer.options().secret, session.info().tenant_id, key), key};
}

// What a failed exchange means for the keys that it was about.
template <class Message>
[[nodiscard]] std::optional<Message> decoded(const Answer& answer) {
  if (answer.reason != Reason::none) { return std::nullopt; }
  Reader reader(answer.payload);
  return Message::decode(reader);
}
[[nodiscard]] inline Reason reason_of(const Answer& answer) {
  return answer.reason == Reason::none ? Reason::protocol : answer.reason;
}

}  // namespace moonpool
