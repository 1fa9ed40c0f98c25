// TCP sockets, IPv4 and IPv6.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/clock.hpp"
#include "io/descriptor.hpp"

namespace moonpool {

// "host:port", or "[v6]:port".
struct TcpAddress {
  std::string host;
  std::uint16_t port = 0;
};
[[nodiscard]] std::optional<TcpAddress> parse_tcp_address(const std::string& text);
[[nodiscard]] std::string text_of(const TcpAddress& address);

// Where to connect to: what a name means, looked up once (a numeric host asks nobody). Empty: nobody knows the name.
struct TcpTarget {
  int family = 0;
  std::string address;  // the system's own form of it
};
[[nodiscard]] std::vector<TcpTarget> resolve_tcp(const TcpAddress& address);
// The same for a numeric host; empty for a name. Asks nobody.
[[nodiscard]] std::vector<TcpTarget> resolve_numeric(const TcpAddress& address);

// Listens; port 0 takes any free one. Throws std::system_error naming the address.
[[nodiscard]] Descriptor listen_tcp(const TcpAddress& address, int backlog);
// Where a socket is bound: "127.0.0.1:4711".
[[nodiscard]] std::string bound_address(const Descriptor& socket);

// Begins to connect and does not wait: the socket becomes writable when it is decided, and connect_error() says how.
// local_host: the address to connect from, empty for any. Not open: errno says why.
[[nodiscard]] Descriptor begin_connect(const TcpTarget& target, const std::string& local_host);
// 0, or why connecting failed.
[[nodiscard]] int connect_error(const Descriptor& socket);
// Connects to the first of the targets that answers. Not open: errno says why (ETIMEDOUT at the deadline).
[[nodiscard]] Descriptor connect_tcp(const TcpAddress& address, const std::string& local_host, Deadline deadline);

// No waiting for more to send; a peer host that has vanished is noticed.
void prepare_stream(const Descriptor& socket);

}  // namespace moonpool
