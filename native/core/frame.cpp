#include "core/frame.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <stdexcept>

#include "core/checksum.hpp"

namespace moonpool {
namespace {

static_assert(std::endian::native == std::endian::little, "integers travel as they lie");

constexpr std::size_t checked_header_bytes = 12;

template <std::unsigned_integral Value>
void append(std::vector<std::byte>& into, Value value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  into.insert(into.end(), bytes.begin(), bytes.end());
}

template <std::unsigned_integral Value>
Value load(ConstBytes bytes) {
  Value value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

template <std::unsigned_integral Value>
Value take(Reader& reader) {
  const ConstBytes bytes = reader.raw(sizeof(Value));
  return reader.ok() ? load<Value>(bytes) : Value{0};
}

}  // namespace

void encode_header(const FrameHeader& header, std::span<std::byte, frame_header_bytes> into) {
  std::memcpy(into.data(), &header.payload_bytes, 4);
  std::memcpy(into.data() + 4, &header.type, 2);
  into[6] = static_cast<std::byte>(header.version);
  into[7] = static_cast<std::byte>(header.flags);
  std::memcpy(into.data() + 8, &header.request_id, 4);
  const std::uint32_t check = crc32c(into.first(checked_header_bytes));
  std::memcpy(into.data() + checked_header_bytes, &check, 4);
}

ParsedHeader parse_header(std::span<const std::byte, frame_header_bytes> from) {
  ParsedHeader parsed;
  if (load<std::uint32_t>(from.subspan(checked_header_bytes)) != crc32c(from.first(checked_header_bytes))) {
    parsed.error = FrameError::bad_check;
    return parsed;
  }
  parsed.header.payload_bytes = load<std::uint32_t>(from);
  parsed.header.type = load<std::uint16_t>(from.subspan(4));
  parsed.header.version = std::to_integer<std::uint8_t>(from[6]);
  parsed.header.flags = std::to_integer<std::uint8_t>(from[7]);
  parsed.header.request_id = load<std::uint32_t>(from.subspan(8));
  if (parsed.header.version < wire_version_min || parsed.header.version > wire_version_max) {
    parsed.error = FrameError::bad_version;
  } else if (parsed.header.payload_bytes > frame_payload_bytes_max) {
    parsed.error = FrameError::too_large;
  }
  return parsed;
}

void Writer::u8(std::uint8_t value) { append(into_, value); }
void Writer::u16(std::uint16_t value) { append(into_, value); }
void Writer::u32(std::uint32_t value) { append(into_, value); }
void Writer::u64(std::uint64_t value) { append(into_, value); }

void Writer::digest(const Digest& value) {
  u64(value.low);
  u64(value.high);
}

void Writer::text(std::string_view value) {
  if (value.size() > std::numeric_limits<std::uint16_t>::max()) throw std::length_error("text longer than 65535 bytes");
  u16(static_cast<std::uint16_t>(value.size()));
  raw(std::as_bytes(std::span(value)));
}

void Writer::blob(ConstBytes value) {
  if (value.size() > frame_payload_bytes_max) throw std::length_error("bytes longer than a frame may be");
  u32(static_cast<std::uint32_t>(value.size()));
  raw(value);
}

void Writer::raw(ConstBytes value) { into_.insert(into_.end(), value.begin(), value.end()); }

std::uint8_t Reader::u8() { return take<std::uint8_t>(*this); }
std::uint16_t Reader::u16() { return take<std::uint16_t>(*this); }
std::uint32_t Reader::u32() { return take<std::uint32_t>(*this); }
std::uint64_t Reader::u64() { return take<std::uint64_t>(*this); }

bool Reader::boolean() {
  const std::uint8_t value = u8();
  if (value > 1) fail();
  return ok_ && value == 1;
}

Digest Reader::digest() {
  const std::uint64_t low = u64();
  const std::uint64_t high = u64();
  return ok_ ? Digest{low, high} : Digest{};
}

std::string_view Reader::text() {
  const ConstBytes bytes = raw(u16());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ConstBytes Reader::blob() { return raw(u32()); }

ConstBytes Reader::raw(std::size_t count) {
  if (!ok_ || count > from_.size()) {
    fail();
    return {};
  }
  const ConstBytes bytes = from_.first(count);
  from_ = from_.subspan(count);
  return bytes;
}

std::uint32_t Reader::count(std::size_t item_bytes_min) {
  const std::uint32_t value = u32();
  if (value > batch_count_max || value * item_bytes_min > from_.size()) fail();
  return ok_ ? value : 0;
}

}  // namespace moonpool
