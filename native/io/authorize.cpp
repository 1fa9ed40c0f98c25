#include "io/authorize.hpp"

namespace moonpool {

bool authorize(const Principal& principal, MessageType verb, std::uint64_t tenant_id) {
  if (verb == MessageType::ping || verb == MessageType::describe || verb == MessageType::goodbye) { return true; }
  if (principal.role == Role::owner) { return verb == MessageType::events; }
  switch (verb) {
    case MessageType::events: return false;
    case MessageType::arena: return principal.shared_memory;
    case MessageType::stat: return principal.home_tenant;
    default: return tenant_id == principal.tenant_id || (tenant_id == every_tenant && principal.home_tenant);
  }
}

std::uint64_t scoped_namespace(std::uint64_t namespace_id, std::uint64_t tenant_id) {
  return namespace_id == 0 || namespace_id == tenant_id ? namespace_id : namespace_id ^ tenant_id;
}

}  // namespace moonpool
