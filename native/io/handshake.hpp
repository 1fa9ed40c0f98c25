// Who is it? Both sides prove that they know the cluster secret without sending it.
#pragma once

#include "core/messages.hpp"
#include "core/siphash.hpp"

namespace moonpool {

struct ProofInput {
  SipKey secret{};
  Nonce server_nonce{};
  Nonce client_nonce{};
};
[[nodiscard]] Digest client_proof(const ProofInput& input, std::string_view tenant, std::string_view name);
[[nodiscard]] Digest server_proof(const ProofInput& input);
// In a time that does not depend on where they differ.
[[nodiscard]] bool equal_proofs(const Digest& left, const Digest& right);
// The same number on every node of the cluster.
[[nodiscard]] std::uint64_t tenant_id_of(const SipKey& secret, std::string_view tenant);
[[nodiscard]] Nonce random_nonce();
[[nodiscard]] std::uint64_t random_u64();
// Throws std::invalid_argument unless it has 16 bytes.
[[nodiscard]] SipKey secret_from(std::string_view bytes);
// The highest version that both speak, or nullopt.
[[nodiscard]] std::optional<std::uint8_t> negotiate(std::uint8_t peer_min, std::uint8_t peer_max);

}  // namespace moonpool
