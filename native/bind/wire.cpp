// What travels: digests and messages.
#include <nanobind/nanobind.h>

#include <cstring>

#include "bind/binders.hpp"
#include "bind/numbers.hpp"
#include "core/messages.hpp"
#include "core/siphash.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

SipKey sip_key(const nb::bytes& bytes) {
  SipKey key{};
  if (bytes.size() != key.size()) throw nb::value_error("a SipHash key has 16 bytes");
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

nb::bytes bytes_of(const Digest& digest) {
  std::vector<std::byte> bytes;
  Writer(bytes).digest(digest);
  return nb::bytes(bytes.data(), bytes.size());
}

nb::bytes hash_of(const nb::bytes& key, const nb::object& data) {
  const BufferGuard buffer(data, PyBUF_C_CONTIGUOUS);
  return bytes_of(siphash128(sip_key(key), buffer.bytes()));
}

nb::bytes digest_of(const nb::bytes& secret_key, std::uint64_t tenant_id, const nb::bytes& key) {
  return bytes_of(key_digest(sip_key(secret_key), tenant_id, {key.c_str(), key.size()}));
}

bool is_message(std::uint16_t message_type, const nb::object& payload) {
  const BufferGuard buffer(payload, PyBUF_C_CONTIGUOUS);
  return decode_message(message_type, buffer.bytes());
}

}  // namespace

void bind_wire(nb::module_& module) {
  module.attr("wire_versions") = nb::make_tuple(wire_version_min, wire_version_max);
  module.def("siphash128", &hash_of, nb::arg("key"), nb::arg("data"));
  module.def("key_digest", &digest_of, nb::arg("secret_key"), nb::arg("tenant_id"), nb::arg("key"));
  module.def("decode_message", &is_message, nb::arg("message_type"), nb::arg("payload"));
}

}  // namespace moonpool
