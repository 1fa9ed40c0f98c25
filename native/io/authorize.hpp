// The one place that says who may do what.
#pragma once

#include "io/connection.hpp"

namespace moonpool {

// Whose things a verb touches, where that is everybody's.
inline constexpr std::uint64_t every_tenant = 0;

// May the principal use the verb on things of that tenant? Stands before every verb of every server.
[[nodiscard]] bool authorize(const Principal& principal, MessageType verb, std::uint64_t tenant_id);

// Namespaces of different tenants never meet, whatever number a client chooses. Undoes itself; 0 (no tag) stays.
[[nodiscard]] std::uint64_t scoped_namespace(std::uint64_t namespace_id, std::uint64_t tenant_id);

}  // namespace moonpool
