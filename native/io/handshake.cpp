#include "io/handshake.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace moonpool {
namespace {

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void fill_random(MutableBytes into) {
  while (!into.empty()) {
    const ssize_t count = ::getrandom(into.data(), into.size(), 0);
    if (count < 0 && errno != EINTR) { throw std::system_error(errno, std::generic_category(), "no random numbers"); }
    into = into.subspan(count < 0 ? 0 : static_cast<std::size_t>(count));
  }
}

}  // namespace

Digest client_proof(const ProofInput& input, std::string_view tenant, std::string_view name) {
  std::vector<std::byte> text;
  Writer writer(text);
  writer.raw(bytes_of("client"));
  writer.raw(input.server_nonce);
  writer.raw(input.client_nonce);
  writer.text(tenant);  // with its length: "ab"+"c" and "a"+"bc" must differ
  writer.text(name);
  return siphash128(input.secret, text);
}

Digest server_proof(const ProofInput& input) {
  std::vector<std::byte> text;
  Writer writer(text);
  writer.raw(bytes_of("server"));
  writer.raw(input.client_nonce);
  writer.raw(input.server_nonce);
  return siphash128(input.secret, text);
}

bool equal_proofs(const Digest& left, const Digest& right) {
  return ((left.low ^ right.low) | (left.high ^ right.high)) == 0;
}

std::uint64_t tenant_id_of(const SipKey& secret, std::string_view tenant) {
  std::vector<std::byte> text;
  Writer writer(text);
  writer.raw(bytes_of("tenant"));
  writer.raw(bytes_of(tenant));
  return siphash128(secret, text).low;
}

Nonce random_nonce() {
  Nonce nonce{};
  fill_random(nonce);
  return nonce;
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

SipKey secret_from(std::string_view bytes) {
  SipKey key{};
  if (bytes.size() != key.size()) {
    throw std::invalid_argument("the secret must have 16 bytes, not " + std::to_string(bytes.size()));
  }
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

std::optional<std::uint8_t> negotiate(std::uint8_t peer_min, std::uint8_t peer_max) {
  const std::uint8_t low = std::max(peer_min, wire_version_min);
  const std::uint8_t high = std::min(peer_max, wire_version_max);
  return low <= high ? std::optional(high) : std::nullopt;
}

}  // namespace moonpool
