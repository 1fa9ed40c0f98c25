// Framing and bounds-checked little-endian encoding. Pure: no socket is touched here.
//
// A frame is a 16-byte header and a payload:
//   u32 payload_bytes | u16 type | u8 version | u8 flags | u32 request_id | u32 header_check
// header_check is the CRC32C of the first twelve bytes: garbage is refused before a byte of it is believed.
#pragma once

#include "core/types.hpp"

namespace moonpool {

inline constexpr std::uint8_t wire_version_min = 1;
inline constexpr std::uint8_t wire_version_max = 1;
inline constexpr std::size_t frame_header_bytes = 16;
inline constexpr std::uint32_t frame_payload_bytes_max = 4U << 20;
inline constexpr std::uint32_t batch_count_max = 16'384;  // items in one message

struct FrameHeader {
  std::uint32_t payload_bytes = 0;
  std::uint16_t type = 0;
  std::uint8_t version = wire_version_max;
  std::uint8_t flags = 0;
  std::uint32_t request_id = 0;
};

enum class FrameError : std::uint8_t { none, bad_check, too_large, bad_version };

struct ParsedHeader {
  FrameHeader header;
  FrameError error = FrameError::none;
};

void encode_header(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into);
[[nodiscard]] ParsedHeader parse_header(std::span<const std::byte, frame_header_bytes> from);

// Appends to a growing buffer.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& into) : into_(into) {}
  void u8(std::uint8_t value);
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void boolean(bool value) { u8(value ? 1 : 0); }
  void digest(const Digest& value);
  void text(std::string_view value);   // u16 length, bytes
  void blob(ConstBytes value);         // u32 length, bytes
  void raw(ConstBytes value);

 private:
  std::vector<std::byte>& into_;
};

// Reads from a payload. After the first read past the end every value is zero and ok() is false; nothing is
// allocated from a length before that many bytes are known to be there.
class Reader {
 public:
  explicit Reader(ConstBytes from) : from_(from) {}
  [[nodiscard]] std::uint8_t u8();
  [[nodiscard]] std::uint16_t u16();
  [[nodiscard]] std::uint32_t u32();
  [[nodiscard]] std::uint64_t u64();
  [[nodiscard]] bool boolean();        // 0 or 1, anything else is an error
  [[nodiscard]] Digest digest();
  [[nodiscard]] std::string_view text();  // points into the payload
  [[nodiscard]] ConstBytes blob();        // points into the payload
  [[nodiscard]] ConstBytes raw(std::size_t count);
  // A count of items of at least item_bytes_min each that can still fit, at most batch_count_max; else an error.
  [[nodiscard]] std::uint32_t count(std::size_t item_bytes_min);
  void fail() { ok_ = false; }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool finished() const { return ok_ && from_.empty(); }  // nothing left over
 private:
  ConstBytes from_;
  bool ok_ = true;
};

}  // namespace moonpool
