// Writes one JSON document.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace moonpool {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  // Bytes that are no UTF-8 become '?'.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth);
  template <std::unsigned_integral Number>
    requires(!std::same_as<Number, bool>)
  JsonWriter& value(Number number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  template <class Value>
  JsonWriter& field(std::string_view name, Value field_value) {
    return key(name).value(field_value);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }
  [[nodiscard]] std::size_t byte_count() const { return text_.size(); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();
  void append_quoted(std::string_view text);

  std::string text_;
  bool first_ = true;
  bool after_key_ = false;
};

}  // namespace moonpool
