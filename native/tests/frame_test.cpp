#include "core/frame.hpp"

#include <stdexcept>

#include "tests/expect.hpp"

namespace moonpool {
namespace {

using test::expect;
using test::expect_equal;

using HeaderBytes = std::array<std::byte, frame_header_bytes>;

HeaderBytes header_bytes(const FrameHeader& header) {
  HeaderBytes bytes;
  encode_header(header, bytes);
  return bytes;
}

void a_header_comes_back_as_it_was() {
  const FrameHeader header{
      .payload_bytes = 0x00012345, .type = 0x0117, .version = 1, .flags = 7, .request_id = 0xdeadbeef};
  const ParsedHeader parsed = parse_header(header_bytes(header));
  expect(parsed.error == FrameError::none);
  expect_equal(parsed.header.payload_bytes, header.payload_bytes);
  expect_equal(parsed.header.type, header.type);
  expect_equal(int{parsed.header.flags}, int{header.flags});
  expect_equal(parsed.header.request_id, header.request_id);
}

void every_flipped_bit_of_a_header_is_refused() {
  const HeaderBytes good = header_bytes({.payload_bytes = 64, .type = 3, .request_id = 9});
  for (std::size_t bit = 0; bit < 8 * frame_header_bytes; ++bit) {
    HeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    expect(parse_header(bad).error == FrameError::bad_check, "a flipped bit was believed");
  }
}

void unknown_versions_and_large_payloads_are_named() {
  expect(parse_header(header_bytes({.version = wire_version_max + 1})).error == FrameError::bad_version);
  expect(parse_header(header_bytes({.version = 0})).error == FrameError::bad_version);
  expect(parse_header(header_bytes({.payload_bytes = frame_payload_bytes_max + 1})).error == FrameError::too_large);
  expect(parse_header(header_bytes({.payload_bytes = frame_payload_bytes_max})).error == FrameError::none);
}

void values_come_back_in_order_and_nothing_is_left() {
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
  expect_equal(int{reader.u8()}, 1);
  expect_equal(reader.u16(), 0x0203);
  expect_equal(reader.u32(), 0x04050607U);
  expect(!reader.finished(), "finished with bytes left");
  expect_equal(reader.u64(), 0x08090a0b0c0d0e0fULL);
  expect(reader.boolean());
  expect(reader.digest() == Digest{1, 2});
  expect_equal(reader.text(), std::string_view("key"));
  expect_equal(reader.blob().size(), 4UL);
  expect(reader.finished());
}

void after_the_end_everything_is_zero_and_not_ok() {
  const std::vector<std::byte> bytes(3, std::byte{0xff});
  Reader reader(bytes);
  expect_equal(reader.u32(), 0U);
  expect(!reader.ok());
  expect_equal(int{reader.u8()}, 0, "bytes that are there were given after an error");
  expect(reader.text().empty() && reader.blob().empty() && reader.raw(0).empty());
  expect(!reader.finished());
}

void a_boolean_is_zero_or_one() {
  const std::vector<std::byte> bytes{std::byte{2}};
  Reader reader(bytes);
  expect(!reader.boolean() && !reader.ok());
}

void a_count_that_cannot_fit_is_an_error() {
  const auto count_of = [](std::uint32_t count, std::size_t following_bytes, std::size_t item_bytes_min) {
    std::vector<std::byte> bytes;
    Writer(bytes).u32(count);
    bytes.resize(bytes.size() + following_bytes);
    Reader reader(bytes);
    const std::uint32_t value = reader.count(item_bytes_min);
    return reader.ok() ? std::optional(value) : std::nullopt;
  };
  expect(count_of(3, 12, 4) == std::optional(3U));
  expect(!count_of(4, 12, 4), "four items of four bytes in twelve bytes");
  expect(!count_of(0xffffffff, 12, 1));
  expect(!count_of(batch_count_max + 1, 2 * batch_count_max, 1), "more items than a message may carry");
}

void what_a_reader_could_not_take_back_is_not_written() {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  bool refused = false;
  try {
    writer.text(std::string(70'000, 'x'));
  } catch (const std::length_error&) { refused = true; }
  expect(refused && bytes.empty(), "a text longer than its length field was written");
}

}  // namespace
}  // namespace moonpool

int main() {
  using namespace moonpool;
  return test::run({
      {"a header comes back as it was", a_header_comes_back_as_it_was},
      {"every flipped bit of a header is refused", every_flipped_bit_of_a_header_is_refused},
      {"unknown versions and large payloads are named", unknown_versions_and_large_payloads_are_named},
      {"values come back in order and nothing is left", values_come_back_in_order_and_nothing_is_left},
      {"after the end everything is zero and not ok", after_the_end_everything_is_zero_and_not_ok},
      {"a boolean is zero or one", a_boolean_is_zero_or_one},
      {"a count that cannot fit is an error", a_count_that_cannot_fit_is_an_error},
      {"what a reader could not take back is not written", what_a_reader_could_not_take_back_is_not_written},
  });
}
