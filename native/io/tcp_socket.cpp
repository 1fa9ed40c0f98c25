#include "io/tcp_socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

namespace moonpool {
namespace {

constexpr int keepalive_idle_s = 10;
constexpr int keepalive_interval_s = 5;
constexpr int keepalive_count = 3;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int refused = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &wanted, &found);
  return Addresses(refused == 0 ? found : nullptr);
}

std::vector<TcpTarget> targets_of(const Addresses& found) {
  std::vector<TcpTarget> targets;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    targets.push_back({one->ai_family, {reinterpret_cast<const char*>(one->ai_addr), one->ai_addrlen}});
  }
  return targets;
}

void set_option(const Descriptor& socket, int level, int option, int value) {
  (void)::setsockopt(socket.number(), level, option, &value, sizeof value);  // a wish: sockets work without
}

const sockaddr* generic(const TcpTarget& target) { return reinterpret_cast<const sockaddr*>(target.address.data()); }

bool bind_to(const Descriptor& socket, int family, const std::string& host) {
  const Addresses found = look_up(host, 0, AI_NUMERICHOST);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family == family) { return ::bind(socket.number(), one->ai_addr, one->ai_addrlen) == 0; }
  }
  errno = EADDRNOTAVAIL;
  return false;
}

Descriptor closed_with(int error) {
  errno = error;
  return {};
}

}  // namespace

std::optional<TcpAddress> parse_tcp_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) { return std::nullopt; }
  TcpAddress address;
  address.host = text.substr(0, colon);
  if (address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find_first_of(":[]/") != std::string::npos) {
    return std::nullopt;
  }
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, address.port);
  if (begin == end || stop != end || error != std::errc{} || address.host.empty()) { return std::nullopt; }
  return address;
}

std::string text_of(const TcpAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::vector<TcpTarget> resolve_numeric(const TcpAddress& address) {
  return targets_of(look_up(address.host, address.port, AI_NUMERICHOST));
}

std::vector<TcpTarget> resolve_tcp(const TcpAddress& address) {
  std::vector<TcpTarget> targets = resolve_numeric(address);
  return targets.empty() ? targets_of(look_up(address.host, address.port, 0)) : targets;
}

Descriptor listen_tcp(const TcpAddress& address, int backlog) {
  const std::vector<TcpTarget> targets = resolve_tcp(address);
  const std::string where = "cannot listen at " + text_of(address);
  if (targets.empty()) { throw std::system_error(EADDRNOTAVAIL, std::generic_category(), where); }
  const TcpTarget& target = targets.front();
  Descriptor listener(::socket(target.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.open()) { throw std::system_error(errno, std::generic_category(), where); }
  // A server that is started again takes its port at once, whatever its old connections still wait for.
  set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(listener.number(), generic(target), static_cast<socklen_t>(target.address.size())) != 0 ||
      ::listen(listener.number(), backlog) != 0) {
    throw std::system_error(errno, std::generic_category(), where);
  }
  return listener;
}

std::string bound_address(const Descriptor& socket) {
  sockaddr_storage place{};
  socklen_t length = sizeof place;
  auto* const generic_place = reinterpret_cast<sockaddr*>(&place);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(socket.number(), generic_place, &length) != 0 ||
      ::getnameinfo(generic_place, length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  const std::string name(host.data());
  return (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + port.data();
}

Descriptor begin_connect(const TcpTarget& target, const std::string& local_host) {
  Descriptor socket(::socket(target.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() || (!local_host.empty() && !bind_to(socket, target.family, local_host))) {
    return closed_with(errno);
  }
  prepare_stream(socket);
  const auto length = static_cast<socklen_t>(target.address.size());
  if (::connect(socket.number(), generic(target), length) != 0 && errno != EINPROGRESS) { return closed_with(errno); }
  return socket;
}

int connect_error(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Descriptor connect_tcp(const TcpAddress& address, const std::string& local_host, Deadline deadline) {
  int error = EADDRNOTAVAIL;
  for (const TcpTarget& target : resolve_tcp(address)) {
    Descriptor socket = begin_connect(target, local_host);
    if (!socket.open()) {
      error = errno;
      continue;
    }
    pollfd state{socket.number(), POLLOUT, 0};
    int ready = 0;
    do {
      ready = ::poll(&state, 1, static_cast<int>(deadline.remaining_us() / 1'000));
    } while (ready < 0 && errno == EINTR && !deadline.passed());
    error = ready == 1 ? connect_error(socket) : ETIMEDOUT;
    if (error == 0) { return socket; }
  }
  return closed_with(error);
}

void prepare_stream(const Descriptor& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, keepalive_count);
}

}  // namespace moonpool
