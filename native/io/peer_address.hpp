// Where a server can be reached: a unix socket on this host, or a host and a port.
#pragma once

#include "io/tcp_socket.hpp"

namespace moonpool {

struct PeerAddress {
  std::string path;  // of a unix socket; empty: by TCP
  TcpAddress tcp;

  [[nodiscard]] bool remote() const { return path.empty(); }
};

// "unix:/path", a bare path, "host:port" or "[v6]:port". What is no host and port is a path.
[[nodiscard]] PeerAddress parse_peer_address(const std::string& text);
[[nodiscard]] std::string text_of(const PeerAddress& address);

// What the host of an address means. Asking for a name can take many seconds, and nobody can stop it: a thread asks,
// and its answer serves whoever asks next. A numeric host is answered at once.
// nullopt: not known yet. Empty: nobody knows the name, or too many are asked for at a time.
[[nodiscard]] std::optional<std::vector<TcpTarget>> try_resolve(const TcpAddress& address);
[[nodiscard]] std::vector<TcpTarget> resolve_within(const TcpAddress& address, Deadline deadline);

// Connects, to the first of the name's addresses that answers. Not open: errno says why.
[[nodiscard]] Descriptor connect_peer(const PeerAddress& address, Deadline deadline);

}  // namespace moonpool
