// Unix sockets and the processes behind them.
#pragma once

#include <sys/types.h>

#include <string>

#include "io/descriptor.hpp"

namespace moonpool {

// Listens at path (mode 0600). A socket file that nobody answers on is replaced; throws std::system_error
// naming the path when somebody does (EADDRINUSE), when it is no socket, or when it cannot be made.
[[nodiscard]] Descriptor listen_at(const std::string& path, int backlog);
// Throws as listen_at() does when somebody answers at path. Changes nothing.
void check_free(const std::string& path);
// The next waiting connection, not blocking; not open when there is none.
[[nodiscard]] Descriptor accept_from(const Descriptor& listener);
// Connects without waiting. Not open when nobody listens there (errno says why).
[[nodiscard]] Descriptor connect_to(const std::string& path);

// The process at the other end. The descriptor becomes readable when it has exited; not open when the kernel
// cannot say (another pid namespace).
struct PeerProcess {
  pid_t process_id = 0;
  uid_t user_id = 0;
  Descriptor process;
};
[[nodiscard]] PeerProcess peer_of(const Descriptor& socket);
[[nodiscard]] bool has_exited(const PeerProcess& peer);

}  // namespace moonpool
