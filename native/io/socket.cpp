#include "io/socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "io/clock.hpp"

namespace moonpool {
namespace {

constexpr int option_peer_process = 77;  // SO_PEERPIDFD, since Linux 6.5
constexpr std::uint64_t lock_ms_max = 2'000;
constexpr std::chrono::milliseconds lock_pause{5};

sockaddr_un address_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw std::system_error(ENAMETOOLONG, std::generic_category(), "socket path '" + path + "'");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

Descriptor new_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) { throw std::system_error(errno, std::generic_category(), "cannot make a socket"); }
  return socket;
}

// 0 when the folder is ours, else why it is not.
int try_lock(const Descriptor& folder) { return ::flock(folder.number(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

// Two processes that start at once must not both find the file stale: the folder is locked meanwhile. The lock is held
// for microseconds, so one that stays belongs to somebody who was stopped, or who locks our folder for another reason.
Descriptor lock_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int obstacle = lock.open() ? try_lock(lock) : errno;
  const Deadline deadline = Deadline::after_ms(lock_ms_max);
  while (obstacle == EWOULDBLOCK && !deadline.passed()) {
    std::this_thread::sleep_for(lock_pause);
    obstacle = try_lock(lock);
  }
  if (obstacle == 0) { return lock; }
  const std::string what = obstacle == EWOULDBLOCK ? "another process keeps a lock on" : "cannot use";
  throw std::system_error(obstacle, std::generic_category(), what + " the folder of socket path '" + path + "'");
}

// True: a socket file lies there, and nobody answers.
bool is_stale(const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) { return false; }
  if (!S_ISSOCK(found.st_mode)) {
    throw std::system_error(EADDRINUSE, std::generic_category(),
                            "socket path '" + path + "' is taken by something that is no socket");
  }
  const Descriptor probe = connect_to(path);
  if (probe.open() || errno != ECONNREFUSED) {
    throw std::system_error(EADDRINUSE, std::generic_category(),
                            "socket path '" + path + "' is taken: another process answers there");
  }
  return true;
}

}  // namespace

void check_free(const std::string& path) {
  (void)address_at(path);
  (void)is_stale(path);
}

Descriptor listen_at(const std::string& path, int backlog) {
  const sockaddr_un address = address_at(path);
  const Descriptor lock = lock_folder(path);
  if (is_stale(path)) ::unlink(path.c_str());
  Descriptor listener = new_socket();
  // On Linux the socket's own mode is that of the file to come: there is no moment at which others may connect.
  ::fchmod(listener.number(), S_IRUSR | S_IWUSR);
  if (::bind(listener.number(), generic(address), sizeof address) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot bind socket path '" + path + "'");
  }
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
  if (::listen(listener.number(), backlog) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot listen at socket path '" + path + "'");
  }
  return listener;
}

Descriptor accept_from(const Descriptor& listener) {
  return Descriptor(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Descriptor connect_to(const std::string& path) {
  const sockaddr_un address = address_at(path);
  Descriptor socket = new_socket();
  if (::connect(socket.number(), generic(address), sizeof address) != 0) {
    const int why = errno;
    socket.close();
    errno = why;
  }
  return socket;
}

PeerProcess peer_of(const Descriptor& socket) {
  PeerProcess peer;
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    throw std::system_error(errno, std::generic_category(), "a peer has no credentials");
  }
  peer.process_id = credentials.pid;
  peer.user_id = credentials.uid;
  int process = -1;
  length = sizeof process;
  if (::getsockopt(socket.number(), SOL_SOCKET, option_peer_process, &process, &length) == 0) {
    peer.process = Descriptor(process);
  } else if (credentials.pid > 0) {
    peer.process = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0)));
  }
  return peer;
}

bool has_exited(const PeerProcess& peer) {
  if (!peer.process.open()) { return false; }
  pollfd state{peer.process.number(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

}  // namespace moonpool
