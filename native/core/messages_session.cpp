#include "core/messages_session.hpp"

#include "core/messages_codec.hpp"

namespace moonpool {
namespace {

// Bytes of the sequence that begins with lead; 0: no sequence begins so.
std::size_t sequence_bytes(unsigned lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// The second byte's range shuts out overlong forms, surrogates and what lies past U+10FFFF.
bool is_second_byte(unsigned lead, unsigned byte) {
  if (lead == 0xe0) return byte >= 0xa0 && byte < 0xc0;
  if (lead == 0xed) return byte >= 0x80 && byte < 0xa0;
  if (lead == 0xf0) return byte >= 0x90 && byte < 0xc0;
  if (lead == 0xf4) return byte >= 0x80 && byte < 0x90;
  return byte >= 0x80 && byte < 0xc0;
}

bool is_clean_character(unsigned character) {
  return character >= ' ' || character == '\t' || character == '\n' || character == '\r';
}

}  // namespace

bool is_clean_text(std::string_view text) {
  const auto byte_at = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  for (std::size_t at = 0; at < text.size();) {
    const unsigned lead = byte_at(at);
    const std::size_t count = sequence_bytes(lead);
    if (count == 0 || count > text.size() - at || !is_clean_character(lead)) return false;
    if (count > 1 && !is_second_byte(lead, byte_at(at + 1))) return false;
    for (std::size_t i = 2; i < count; ++i) {
      if ((byte_at(at + i) & 0xc0U) != 0x80U) return false;
    }
    at += count;
  }
  return true;
}

template <class Codec>
void fields(Codec& codec, Like<Hello> auto& hello) {
  codec(hello.magic, hello.version_min, hello.version_max, hello.role, hello.process_id, hello.incarnation,
        hello.nonce);
  codec.text(hello.tenant, label_bytes_max);
  codec.text(hello.name, label_bytes_max);
  codec.text(hello.site, label_bytes_max);
  codec.require(hello.magic == hello_magic && hello.version_min <= hello.version_max);
}

template <class Codec>
void fields(Codec& codec, Like<Challenge> auto& challenge) {
  codec(challenge.version, challenge.incarnation, challenge.nonce);
}

template <class Codec>
void fields(Codec& codec, Like<Authenticate> auto& authenticate) {
  codec(authenticate.proof);
}

template <class Codec>
void fields(Codec& codec, Like<Welcome> auto& welcome) {
  codec(welcome.proof, welcome.incarnation, welcome.tenant_id, welcome.connection, welcome.shared_memory,
        welcome.warming, welcome.small_put_bytes_max);
  codec.text(welcome.node_name, label_bytes_max);
  codec.text(welcome.site, label_bytes_max);
  codec.text(welcome.address, address_bytes_max);
  codec(welcome.arena_bytes);
}

template <class Codec>
void fields(Codec& codec, Like<Describe> auto& describe) {
  codec.document(describe.document);
}

template <class Codec>
void fields(Codec& codec, Like<StatReply> auto& reply) {
  codec.blob(reply.document);
}

template <class Codec>
void fields(Codec& codec, Like<ErrorReply> auto& error) {
  codec(error.reason, error.version_min, error.version_max);
  codec.text(error.message, error_text_bytes_max);
  codec.require(error.version_min <= error.version_max);
}

void Hello::encode(Writer& into) const { write_message(*this, into); }
void Challenge::encode(Writer& into) const { write_message(*this, into); }
void Authenticate::encode(Writer& into) const { write_message(*this, into); }
void Welcome::encode(Writer& into) const { write_message(*this, into); }
void Describe::encode(Writer& into) const { write_message(*this, into); }
void StatReply::encode(Writer& into) const { write_message(*this, into); }
void ErrorReply::encode(Writer& into) const { write_message(*this, into); }

std::optional<Hello> Hello::decode(Reader& from) { return read_message<Hello>(from); }
std::optional<Challenge> Challenge::decode(Reader& from) { return read_message<Challenge>(from); }
std::optional<Authenticate> Authenticate::decode(Reader& from) { return read_message<Authenticate>(from); }
std::optional<Welcome> Welcome::decode(Reader& from) { return read_message<Welcome>(from); }
std::optional<Describe> Describe::decode(Reader& from) { return read_message<Describe>(from); }
std::optional<StatReply> StatReply::decode(Reader& from) { return read_message<StatReply>(from); }
std::optional<ErrorReply> ErrorReply::decode(Reader& from) { return read_message<ErrorReply>(from); }

}  // namespace moonpool
