#include "core/rail_frame.hpp"

#include <bit>
#include <cstring>

#include "core/checksum.hpp"

namespace moonpool {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

constexpr std::size_t check_bytes = sizeof(std::uint32_t);

template <class Value>
void put(std::byte*& at, const Value& value) {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <class Value>
Value take(const std::byte*& at) {
  Value value{};
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

template <std::size_t size>
bool check_fits(std::span<const std::byte, size> header) {
  const std::byte* at = header.data() + size - check_bytes;
  return take<std::uint32_t>(at) == crc32c(header.first(size - check_bytes));
}

std::uint64_t length_max(RailVerb verb) {
  switch (verb) {
    case RailVerb::write:
    case RailVerb::read: return rail_slice_bytes_max;
    case RailVerb::message: return rail_message_bytes_max;
    default: return 0;
  }
}

}  // namespace

void encode_rail_request(const RailRequest& request, std::span<std::byte, rail_request_bytes> into) {
  std::byte* at = into.data();
  put(at, static_cast<std::uint8_t>(request.verb));
  put(at, static_cast<std::uint8_t>(request.checksum ? rail_flag_checksum : 0));
  put(at, std::uint16_t{0});
  put(at, request.number);
  put(at, request.token.low);
  put(at, request.token.high);
  put(at, request.offset);
  put(at, request.length);
  put(at, std::uint32_t{0});
  put(at, crc32c(into.first(rail_request_bytes - check_bytes)));
}

void encode_rail_reply(const RailReply& reply, std::span<std::byte, rail_reply_bytes> into) {
  std::byte* at = into.data();
  put(at, static_cast<std::uint8_t>(reply.answer));
  put(at, static_cast<std::uint8_t>(reply.reason));
  put(at, std::uint16_t{0});
  put(at, reply.number);
  put(at, reply.length);
  put(at, reply.checksum);
  put(at, crc32c(into.first(rail_reply_bytes - check_bytes)));
}

std::optional<RailRequest> decode_rail_request(std::span<const std::byte, rail_request_bytes> from) {
  if (!check_fits(from)) return std::nullopt;
  const std::byte* at = from.data();
  const auto verb = take<std::uint8_t>(at);
  const auto flags = take<std::uint8_t>(at);
  const auto zero = take<std::uint16_t>(at);
  RailRequest request;
  request.number = take<std::uint32_t>(at);
  request.token.low = take<std::uint64_t>(at);
  request.token.high = take<std::uint64_t>(at);
  request.offset = take<std::uint64_t>(at);
  request.length = take<std::uint64_t>(at);
  const auto more_zero = take<std::uint32_t>(at);
  if (verb < static_cast<std::uint8_t>(RailVerb::write) || verb > static_cast<std::uint8_t>(RailVerb::cancel) ||
      flags > rail_flag_checksum || zero != 0 || more_zero != 0) {
    return std::nullopt;
  }
  request.verb = static_cast<RailVerb>(verb);
  request.checksum = flags != 0;
  const bool moves = request.verb == RailVerb::write || request.verb == RailVerb::read;
  if (request.length > length_max(request.verb) || (moves && request.length == 0)) return std::nullopt;
  return request;
}

std::optional<RailReply> decode_rail_reply(std::span<const std::byte, rail_reply_bytes> from) {
  if (!check_fits(from)) return std::nullopt;
  const std::byte* at = from.data();
  const auto answer = take<std::uint8_t>(at);
  const auto reason = take<std::uint8_t>(at);
  const auto zero = take<std::uint16_t>(at);
  RailReply reply;
  reply.number = take<std::uint32_t>(at);
  reply.length = take<std::uint64_t>(at);
  reply.checksum = take<std::uint32_t>(at);
  if (answer < static_cast<std::uint8_t>(RailAnswer::data) || answer > static_cast<std::uint8_t>(RailAnswer::dropped) ||
      reason > static_cast<std::uint8_t>(reason_last) || zero != 0 || reply.length > rail_slice_bytes_max) {
    return std::nullopt;
  }
  reply.answer = static_cast<RailAnswer>(answer);
  reply.reason = static_cast<Reason>(reason);
  const bool failed = reply.answer == RailAnswer::failed;
  if (failed != (reply.reason != Reason::none) && reply.answer != RailAnswer::dropped) return std::nullopt;
  return reply;
}

}  // namespace moonpool
