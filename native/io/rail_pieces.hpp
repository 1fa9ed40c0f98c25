// What both ends of a rail know about sockets: many small parts in one system call, large ones straight to and from
// their memory.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/types.hpp"

namespace moonpool {

// Less than this is copied out of the input buffer, so that many small slices come with one system call; more is
// received where it belongs.
inline constexpr std::uint64_t direct_bytes_min = 16U << 10U;
// What is summed is summed in pieces that are still in the cache.
inline constexpr std::uint64_t hot_bytes = 128U << 10U;

enum class RailStep : std::uint8_t { moved, waiting, ended };

// What has come on a socket and is not used yet.
class RailInput {
 public:
  [[nodiscard]] ConstBytes buffered() const { return ConstBytes(bytes_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t count) { begin_ += count; }
  [[nodiscard]] std::uint64_t last_bytes() const { return last_bytes_; }  // of the last receive that moved
  // Into the buffer.
  RailStep receive(int socket) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == bytes_.size()) { return RailStep::waiting; }
    const RailStep step = taken(::recv(socket, bytes_.data() + end_, bytes_.size() - end_, MSG_DONTWAIT));
    if (step == RailStep::moved) { end_ += last_bytes_; }
    return step;
  }
  // Into the target, and of what comes behind it only a header of header_bytes (0: nothing). The buffer must be empty.
  RailStep receive(int socket, MutableBytes target, std::size_t header_bytes) {
    begin_ = end_ = 0;
    std::array<iovec, 2> parts{iovec{target.data(), target.size()}, iovec{bytes_.data(), header_bytes}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = header_bytes == 0 ? 1 : 2;
    const RailStep step = taken(::recvmsg(socket, &message, MSG_DONTWAIT));
    if (step == RailStep::moved && last_bytes_ > target.size()) {
      end_ = last_bytes_ - target.size();
      last_bytes_ = target.size();
    }
    return step;
  }
  void clear() { begin_ = end_ = 0; }

 private:
  static constexpr std::size_t buffer_bytes = 256U << 10U;

  RailStep taken(ssize_t count) {
    if (count <= 0) { return count < 0 && (errno == EAGAIN || errno == EINTR) ? RailStep::waiting : RailStep::ended; }
    last_bytes_ = static_cast<std::size_t>(count);
    return RailStep::moved;
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(buffer_bytes);
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t last_bytes_ = 0;
};

// Parts of one sendmsg(). Not too many bytes at a time: the system hands them to the other side when the call is over,
// and both sides are to work at once.
class Gather {
 public:
  // False: not all of it fits, and nothing more. skip: bytes that are sent already; reduced by what of them lies in
  // this part.
  bool add(ConstBytes bytes, std::size_t& skip) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (skipped == bytes.size()) { return true; }
    if (count_ == parts_.size() || byte_count_ >= send_bytes_max) { return false; }
    const ConstBytes rest = bytes.subspan(skipped);
    const ConstBytes now = rest.first(std::min(rest.size(), send_bytes_max - byte_count_));
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): iovec serves reading and writing; this one is read
    parts_[count_++] = {const_cast<std::byte*>(now.data()), now.size()};
    byte_count_ += now.size();
    return now.size() == rest.size();
  }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  // Bytes that the socket took, or -1 as errno says.
  [[nodiscard]] ssize_t send(int socket) {
    msghdr message{};
    message.msg_iov = parts_.data();
    message.msg_iovlen = count_;
    return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  static constexpr std::size_t send_bytes_max = 64U << 10U;
  static constexpr std::size_t part_count_max = 256;
  std::array<iovec, part_count_max> parts_{};
  std::size_t count_ = 0;
  std::size_t byte_count_ = 0;
};

}  // namespace moonpool
