// One description of each layout for both directions: fields(codec, message) names a message's fields in their
// order on the wire, and the Encoder writes them while the Decoder reads them. Private to messages_*.cpp.
#pragma once

#include <concepts>
#include <stdexcept>
#include <type_traits>

#include "core/messages.hpp"

namespace moonpool {

// Takes a message both const (to write) and not (to read).
template <class Value, class Message>
concept Like = std::same_as<std::remove_const_t<Value>, Message>;

template <class Value>
inline constexpr bool is_vector = false;
template <class Item>
inline constexpr bool is_vector<std::vector<Item>> = true;

constexpr Status last_of(Status) { return status_last; }
constexpr Reason last_of(Reason) { return reason_last; }
constexpr EventKind last_of(EventKind) { return EventKind::cleared; }
constexpr EventsPhase last_of(EventsPhase) { return EventsPhase::snapshot_end; }
constexpr Role last_of(Role) { return Role::rail; }

// Valid UTF-8 without control characters below space, tab and line ends aside (RFC 3629, section 4).
[[nodiscard]] bool is_clean_text(std::string_view text);

class Encoder {
 public:
  explicit Encoder(Writer& writer) : writer_(writer) {}

  template <class... Values>
  void operator()(const Values&... values) {
    (one(values), ...);
  }
  void text(std::string_view value, std::size_t bytes_max) {
    require(value.size() <= bytes_max && is_clean_text(value));
    writer_.text(value);
  }
  void key(std::string_view value) {
    require(value.size() <= key_bytes_max);
    writer_.text(value);
  }
  void document(std::string_view value) {
    require(value.size() <= document_bytes_max && is_clean_text(value));
    writer_.blob(std::as_bytes(std::span(value)));
  }
  void blob(ConstBytes value) { writer_.blob(value); }
  void require(bool holds) const {
    if (!holds) throw std::invalid_argument("a message breaks the rules of the protocol");
  }

 private:
  template <class Value>
  void one(const Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      writer_.boolean(value);
    } else if constexpr (std::same_as<Value, std::uint8_t>) {
      writer_.u8(value);
    } else if constexpr (std::same_as<Value, std::uint16_t>) {
      writer_.u16(value);
    } else if constexpr (std::same_as<Value, std::uint32_t>) {
      writer_.u32(value);
    } else if constexpr (std::same_as<Value, std::uint64_t>) {
      writer_.u64(value);
    } else if constexpr (std::is_enum_v<Value>) {
      one(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::same_as<Value, Nonce>) {
      writer_.raw(value);
    } else if constexpr (std::same_as<Value, Digest>) {
      writer_.digest(value);
    } else if constexpr (is_vector<Value>) {
      list(value);
    } else {
      fields(*this, value);
    }
  }

  template <class Item>
  void list(const std::vector<Item>& items) {
    if (items.size() > batch_count_max) throw std::length_error("more items than one message may carry");
    writer_.u32(static_cast<std::uint32_t>(items.size()));
    if constexpr (std::same_as<Item, std::uint64_t>) {
      writer_.raw(std::as_bytes(std::span(items)));
    } else {
      for (const auto& item : items) one(item);
    }
  }

  Writer& writer_;
};

// The size on the wire of the smallest Item: one whose texts, lists and optional parts are empty.
template <class Item>
std::size_t item_bytes_min() {
  static const std::size_t size = [] {
    std::vector<std::byte> bytes;
    Writer writer(bytes);
    Encoder{writer}(Item{});
    return bytes.size();
  }();
  return size;
}

class Decoder {
 public:
  explicit Decoder(Reader& reader) : reader_(reader) {}

  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }
  void text(std::string_view& value, std::size_t bytes_max) {
    value = reader_.text();
    require(value.size() <= bytes_max && is_clean_text(value));
  }
  void key(std::string_view& value) {
    value = reader_.text();
    require(value.size() <= key_bytes_max);
  }
  void key(std::string& value) {
    std::string_view view;
    key(view);
    value = view;
  }
  void document(std::string_view& value) {
    const ConstBytes bytes = reader_.blob();
    value = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    require(value.size() <= document_bytes_max && is_clean_text(value));
  }
  void blob(ConstBytes& value) { value = reader_.blob(); }
  void require(bool holds) {
    if (!holds) reader_.fail();
  }

 private:
  template <class Value>
  void one(Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      value = reader_.boolean();
    } else if constexpr (std::same_as<Value, std::uint8_t>) {
      value = reader_.u8();
    } else if constexpr (std::same_as<Value, std::uint16_t>) {
      value = reader_.u16();
    } else if constexpr (std::same_as<Value, std::uint32_t>) {
      value = reader_.u32();
    } else if constexpr (std::same_as<Value, std::uint64_t>) {
      value = reader_.u64();
    } else if constexpr (std::is_enum_v<Value>) {
      std::underlying_type_t<Value> number = 0;
      one(number);
      require(number <= static_cast<std::underlying_type_t<Value>>(last_of(Value{})));
      value = reader_.ok() ? static_cast<Value>(number) : Value{};
    } else if constexpr (std::same_as<Value, Nonce>) {
      const ConstBytes bytes = reader_.raw(value.size());
      std::copy(bytes.begin(), bytes.end(), value.begin());
    } else if constexpr (std::same_as<Value, Digest>) {
      value = reader_.digest();
    } else if constexpr (is_vector<Value>) {
      list(value);
    } else {
      fields(*this, value);
    }
  }

  template <class Item>
  void list(std::vector<Item>& items) {
    const std::uint32_t count = reader_.count(item_bytes_min<Item>());
    if constexpr (std::same_as<Item, std::uint64_t>) {
      const ConstBytes bytes = reader_.raw(count * sizeof(Item));
      items.resize(bytes.size() / sizeof(Item));
      std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(items)).begin());
    } else {
      items.reserve(count);
      for (std::uint32_t i = 0; i < count && reader_.ok(); ++i) one(items.emplace_back());
    }
  }

  Reader& reader_;
};

template <class Message>
void write_message(const Message& message, Writer& into) {
  Encoder encoder(into);
  fields(encoder, message);
}

template <class Message>
std::optional<Message> read_message(Reader& from) {
  std::optional<Message> message(std::in_place);
  Decoder decoder(from);
  fields(decoder, *message);
  if (!from.finished()) message.reset();
  return message;
}

// Values that several messages carry. -----------------------------------------------------------------------

// An absent tag is one byte.
template <class Codec>
void fields(Codec& codec, Like<Tag> auto& tag) {
  bool present = tag.present();
  codec(present);
  if (!present) return;
  codec(tag.namespace_id, tag.block_hash, tag.parent_hash, tag.shard_index, tag.shard_count, tag.bundle_count,
        tag.kv_group, tag.chained);
  codec.require(tag.present() && tag.shard_index < tag.shard_count && tag.bundle_count > 0);
}

template <class Codec>
void fields(Codec& codec, Like<Extent> auto& extent) {
  codec(extent.arena_index, extent.offset, extent.length);
  codec.require(extent.offset + extent.length >= extent.offset);
}

template <class Codec>
void fields(Codec& codec, Like<Outcome> auto& outcome) {
  codec(outcome.status, outcome.reason);
}

template <class Codec>
void fields(Codec& codec, Like<KeyRef> auto& item) {
  codec(item.digest);
  codec.key(item.key);
}

template <class Codec>
void fields(Codec& codec, Like<HolderInfo> auto& holder) {
  codec(holder.incarnation, holder.block_count, holder.tier_mask);
  codec.text(holder.name, label_bytes_max);
  codec.text(holder.site, label_bytes_max);
  codec.text(holder.address, address_bytes_max);
}

}  // namespace moonpool
