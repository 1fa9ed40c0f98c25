// Any bytes as a frame: a header that is believed, then a payload that is decoded as the type it names, and as every
// other type. Nothing may be read past the end, allocated from an unchecked length, or left undefined.
#include <cstdint>
#include <cstring>
#include <span>

#include "core/frame.hpp"
#include "core/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moonpool;
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  if (bytes.size() < frame_header_bytes) return 0;
  const auto header_bytes = bytes.first<frame_header_bytes>();
  const ParsedHeader parsed = parse_header(header_bytes);
  const ConstBytes payload = bytes.subspan(frame_header_bytes);
  // The checksum keeps chance out of the header, so the type is also taken from the bytes as they are.
  std::uint16_t type = 0;
  std::memcpy(&type, header_bytes.data() + 4, sizeof type);
  if (parsed.error == FrameError::none) type = parsed.header.type;
  const std::uint16_t known = static_cast<std::uint16_t>(MessageType::goodbye) + 1;
  const std::uint16_t reply = static_cast<std::uint16_t>(MessageType::reply_bit);
  static_cast<void>(decode_message(type, payload));
  static_cast<void>(decode_message(type % known, payload));
  static_cast<void>(decode_message(static_cast<std::uint16_t>(type % known) | reply, payload));
  static_cast<void>(decode_message(static_cast<std::uint16_t>(MessageType::error), payload));
  return 0;
}
