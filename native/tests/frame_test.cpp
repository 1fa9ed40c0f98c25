#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "core/frame.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

namespace moonpool {
namespace {

using HeaderBytes = std::array<std::byte, frame_header_bytes>;

HeaderBytes header_bytes(const FrameHeader& header) {
  HeaderBytes bytes;
  encode_header(header, bytes);
  return bytes;
}

TEST_CASE("a header comes back as it was") {
  const FrameHeader header{
      .payload_bytes = 0x00012345, .type = 0x0117, .version = 1, .flags = 7, .request_id = 0xdeadbeef};
  const ParsedHeader parsed = parse_header(header_bytes(header));
  CHECK(parsed.error == FrameError::none);
  CHECK(parsed.header.payload_bytes == header.payload_bytes);
  CHECK(parsed.header.type == header.type);
  CHECK(int{parsed.header.flags} == int{header.flags});
  CHECK(parsed.header.request_id == header.request_id);
}

TEST_CASE("every flipped bit of a header is refused") {
  const HeaderBytes good = header_bytes({.payload_bytes = 64, .type = 3, .request_id = 9});
  for (std::size_t bit = 0; bit < 8 * frame_header_bytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_MESSAGE(parse_header(bad).error == FrameError::bad_check, "a flipped bit was believed");
  }
}

TEST_CASE("unknown versions and large payloads are named") {
  CHECK(parse_header(header_bytes({.version = wire_version_max + 1})).error == FrameError::bad_version);
  CHECK(parse_header(header_bytes({.version = 0})).error == FrameError::bad_version);
  CHECK(parse_header(header_bytes({.payload_bytes = frame_payload_bytes_max + 1})).error == FrameError::too_large);
  CHECK(parse_header(header_bytes({.payload_bytes = frame_payload_bytes_max})).error == FrameError::none);
}

TEST_CASE("values come back in order and nothing is left") {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  writer.u8(1);
  writer.u16(0x0203);
  writer.u32(0x04050607);
  writer.u64(0x08090a0b0c0d0e0fULL);
  writer.boolean(true);
  writer.digest({1, 2});
  writer.text("key");
  writer.blob(std::as_bytes(std::span("blob", 4)));
  Reader reader(bytes);
  CHECK(int{reader.u8()} == 1);
  CHECK(reader.u16() == 0x0203);
  CHECK(reader.u32() == 0x04050607U);
  CHECK_MESSAGE(!reader.finished(), "finished with bytes left");
  CHECK(reader.u64() == 0x08090a0b0c0d0e0fULL);
  CHECK(reader.boolean());
  CHECK(reader.digest() == Digest{1, 2});
  CHECK(reader.text() == std::string_view("key"));
  CHECK(reader.blob().size() == 4UL);
  CHECK(reader.finished());
}

TEST_CASE("after the end everything is zero and not ok") {
  const std::vector<std::byte> bytes(3, std::byte{0xff});
  Reader reader(bytes);
  CHECK(reader.u32() == 0U);
  CHECK(!reader.ok());
  CHECK_MESSAGE((int{reader.u8()}) == (0), "bytes that are there were given after an error");
  CHECK((reader.text().empty() && reader.blob().empty() && reader.raw(0).empty()));
  CHECK(!reader.finished());
}

TEST_CASE("a boolean is zero or one") {
  const std::vector<std::byte> bytes{std::byte{2}};
  Reader reader(bytes);
  CHECK((!reader.boolean() && !reader.ok()));
}

TEST_CASE("a count that cannot fit is an error") {
  const auto count_of = [](std::uint32_t count, std::size_t following_bytes, std::size_t item_bytes_min) {
    std::vector<std::byte> bytes;
    Writer(bytes).u32(count);
    bytes.resize(bytes.size() + following_bytes);
    Reader reader(bytes);
    const std::uint32_t value = reader.count(item_bytes_min);
    return reader.ok() ? std::optional(value) : std::nullopt;
  };
  CHECK(count_of(3, 12, 4) == std::optional(3U));
  CHECK_MESSAGE(!count_of(4, 12, 4), "four items of four bytes in twelve bytes");
  CHECK(!count_of(0xffffffff, 12, 1));
  CHECK_MESSAGE(!count_of(batch_count_max + 1, 2 * batch_count_max, 1), "more items than a message may carry");
}

TEST_CASE("what a reader could not take back is not written") {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  bool refused = false;
  try {
    writer.text(std::string(70'000, 'x'));
  } catch (const std::length_error&) { refused = true; }
  CHECK_MESSAGE((refused && bytes.empty()), "a text longer than its length field was written");
}

}  // namespace
}  // namespace moonpool
