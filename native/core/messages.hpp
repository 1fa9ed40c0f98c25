// The messages of the pool protocol, version 1. Each has encode(Writer&) and a static decode(Reader&) that
// returns nullopt for anything but exactly one well-formed message. string_view and ConstBytes members of a
// decoded message point into the payload. encode() throws std::invalid_argument or std::length_error where the
// message breaks the rules that decode() checks.
#pragma once

#include "core/messages_index.hpp"
#include "core/messages_object.hpp"
#include "core/messages_session.hpp"

namespace moonpool {

// Append only. A reply has the type of its request plus 0x100 and the same request_id.
enum class MessageType : std::uint16_t {
  hello = 1,        // client speaks first; reply: challenge
  authenticate = 2, // reply: welcome
  reserve = 3,
  commit = 4,
  abort = 5,
  put_inline = 6,   // small values: reserve, write and commit in one message; reply as commit
  write = 7,        // socket transport: bytes of a reservation; reply: Outcomes of one
  hold = 8,
  release = 9,      // one way
  read = 10,        // socket transport: bytes of a hold; reply: ReadReply
  exists = 11,
  remove = 12,
  pin = 13,
  unpin = 14,
  clear = 15,
  why = 16,
  list = 17,
  match = 18,       // node (its own blocks) and directory (everybody's)
  locate = 19,
  describe = 20,    // a JSON document about the peer, shown in /status
  stat = 21,        // reply: the JSON document of /status
  ping = 22,
  arena = 23,       // reply: ArenaReply with one file descriptor (SCM_RIGHTS)
  events = 24,      // owner to directory; reply: EventsReply
  goodbye = 25,     // orderly end: nothing of mine is in use any more; one way
  touched = 27,     // Release's layout: what a reader of the catalogue has used without a hold; one way
  damaged = 26,  // Keys: a reader found bytes that do not fit their checksum; the node looks itself; reply: Outcomes
  reply_bit = 0x100,
  error = 0x1ff,  // reply to anything: ErrorReply, then the connection is closed
};

// Whether payload is exactly one well-formed message of that type, request or reply (fuzz and hostile-input tests).
[[nodiscard]] bool decode_message(std::uint16_t type, ConstBytes payload);

}  // namespace moonpool
