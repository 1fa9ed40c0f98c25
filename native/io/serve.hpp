// Small pieces that every verb of every server uses.
#pragma once

#include "io/connection.hpp"

namespace moonpool {

template <class Message>
[[nodiscard]] Message decoded(const Frame& frame) {
  Reader reader(frame.payload);
  std::optional<Message> message = Message::decode(reader);
  if (!message) {
    throw Refusal{Reason::bad_request, "malformed_message",
                  "a message of type " + std::to_string(frame.header.type) + " is malformed"};
  }
  return *std::move(message);
}

[[nodiscard]] inline FrameHeader reply_header(const Connection& connection, const Frame& request) {
  const auto type =
      static_cast<std::uint16_t>(request.header.type | static_cast<std::uint16_t>(MessageType::reply_bit));
  return {0, type, connection.version, 0, request.header.request_id};
}

template <class Message>
void reply(Connection& connection, const Frame& request, const Message& message) {
  append_frame(connection.stream.output(), reply_header(connection, request), message);
}

}  // namespace moonpool
