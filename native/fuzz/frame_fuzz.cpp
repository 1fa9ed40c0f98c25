// Any bytes as a frame: a header that is believed, then a payload that is decoded as the type it names, and as every
// other type. Nothing may be read past the end, allocated from an unchecked length, or left undefined.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/frame.hpp"
#include "core/messages.hpp"
#include "tests/message_samples.hpp"

namespace moonpool {
namespace {

// A whole frame with one well-formed message, chosen by seed.
std::vector<std::byte> sample_frame(unsigned seed) {
  std::vector<std::vector<std::byte>> frames;
  test::MessageSamples(seed).each([&](std::uint16_t type, const auto& message) {
    auto& frame = frames.emplace_back(frame_header_bytes);
    Writer writer(frame);
    message.encode(writer);
    const auto payload_bytes = static_cast<std::uint32_t>(frame.size() - frame_header_bytes);
    encode_header({.payload_bytes = payload_bytes, .type = type}, std::span(frame).first<frame_header_bytes>());
  });
  return frames[seed / 64 % frames.size()];
}

}  // namespace
}  // namespace moonpool

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

// Besides the fuzzer's own mutations, now and then a well-formed message to start from: no corpus has to be kept.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  if (seed % 64 != 0) return LLVMFuzzerMutate(data, size, size_max);
  const auto frame = moonpool::sample_frame(seed);
  const std::size_t count = std::min(size_max, frame.size());
  std::memcpy(data, frame.data(), count);
  return count;
}

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
