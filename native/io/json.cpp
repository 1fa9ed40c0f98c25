#include "io/json.hpp"

namespace moonpool {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";

// How many bytes the UTF-8 sequence at the start of text has; 0: it is none.
std::size_t sequence_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t count = lead < 0x80                   ? 1
                            : lead >= 0xc2 && lead < 0xe0 ? 2
                            : lead >= 0xe0 && lead < 0xf0 ? 3
                            : lead >= 0xf0 && lead < 0xf5 ? 4
                                                          : 0;
  if (count == 0 || count > text.size()) { return 0; }
  for (std::size_t index = 1; index < count; ++index) {
    if ((static_cast<unsigned char>(text[index]) & 0xc0U) != 0x80U) { return 0; }
  }
  const auto second = count > 1 ? static_cast<unsigned char>(text[1]) : 0U;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool past_end = lead == 0xf4 && second >= 0x90;
  return overlong || surrogate || past_end ? 0 : count;
}

}  // namespace

void JsonWriter::separate() {
  if (!after_key_ && !first_) { text_ += ','; }
  first_ = false;
  after_key_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

void JsonWriter::append_quoted(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const std::size_t count = sequence_bytes(text);
    const char first = text[0];
    if (count == 0) {
      text_ += '?';
    } else if (first == '"' || first == '\\') {
      text_ += '\\';
      text_ += first;
    } else if (static_cast<unsigned char>(first) < 0x20) {
      text_ += "\\u00";
      text_ += hex_digits[static_cast<unsigned char>(first) >> 4U];
      text_ += hex_digits[static_cast<unsigned char>(first) & 15U];
    } else {
      text_ += text.substr(0, count);
    }
    text.remove_prefix(count == 0 ? 1 : count);
  }
  text_ += '"';
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_quoted(name);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_quoted(text);
  return *this;
}

JsonWriter& JsonWriter::value(bool truth) {
  separate();
  text_ += truth ? "true" : "false";
  return *this;
}

}  // namespace moonpool
