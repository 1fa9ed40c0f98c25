// What is said on a rail once its connection is proven. Pure: no socket is touched here.
//
// Both sides send headers of a fixed size; some are followed by raw bytes of exactly `length`:
//   request, 48 bytes: u8 kind | u8 flags | u16 0 | u32 number | u64 token low, high | u64 offset | u64 length | u32 0
//                      | u32 check
//   reply, 24 bytes:   u8 kind | u8 reason | u16 0 | u32 number | u64 length | u32 checksum | u32 check
// check is the CRC32C of all that comes before it. Replies come in the order of the requests; `dropped` alone comes
// when it can.
#pragma once

#include "core/types.hpp"

namespace moonpool {

inline constexpr std::size_t rail_request_bytes = 48;
inline constexpr std::size_t rail_reply_bytes = 24;
inline constexpr std::uint64_t rail_slice_bytes_max = 64ULL << 20U;
inline constexpr std::uint64_t rail_message_bytes_max = 64ULL << 10U;

enum class RailVerb : std::uint8_t {
  write = 1,    // length bytes for [offset, offset + length) of the region follow; reply: done
  read = 2,     // reply: data, and the bytes of the slice
  message = 3,  // length bytes for the program follow; token names the message, so that a repeated one shows once
  probe = 4,    // reply: done
  cancel = 5,  // offset is the connection of another rail of the same client: it is closed, nobody is inside any more
};
inline constexpr std::uint8_t rail_flag_checksum = 1;  // of a write: the CRC32C of what was applied is wanted

struct RailRequest {
  RailVerb verb = RailVerb::probe;
  bool checksum = false;
  std::uint32_t number = 0;
  Digest token;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

enum class RailAnswer : std::uint8_t {
  data = 1,  // length bytes follow
  done = 2,  // applied, whole
  failed = 3,  // reason says why; nothing, or part, was applied
  dropped = 4,  // of a cancel
};

struct RailReply {
  RailAnswer answer = RailAnswer::done;
  Reason reason = Reason::none;
  std::uint32_t number = 0;
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
};

void encode_rail_request(const RailRequest& request, std::span<std::byte, rail_request_bytes> into);
void encode_rail_reply(const RailReply& reply, std::span<std::byte, rail_reply_bytes> into);
// nullopt for anything but a well-formed header within the limits above; the connection is not to be read any more.
[[nodiscard]] std::optional<RailRequest> decode_rail_request(std::span<const std::byte, rail_request_bytes> from);
[[nodiscard]] std::optional<RailReply> decode_rail_reply(std::span<const std::byte, rail_reply_bytes> from);

}  // namespace moonpool
