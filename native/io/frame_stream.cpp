#include "io/frame_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace moonpool {
namespace {

constexpr std::size_t receive_bytes_min = 64U << 10U;
constexpr std::size_t receive_bytes_max = 4U << 20U;
constexpr std::size_t kept_capacity_bytes = 4U << 20U;  // larger output buffers go back when they run empty
constexpr std::size_t descriptors_per_message_max = 4;

// Room for the control message of a few descriptors, aligned as the kernel wants it.
struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(descriptors_per_message_max * sizeof(int))> bytes{};
};

void collect_descriptors(msghdr& message, std::deque<Descriptor>& into) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) { continue; }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + index * sizeof number, sizeof number);
      into.emplace_back(number);
    }
  }
}

ssize_t send_with(const Descriptor& socket, ConstBytes bytes, int descriptor) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): iovec serves reading and writing; this one is written from
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  Control control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(sizeof descriptor);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket.number(), &message, MSG_NOSIGNAL);
}

void drop_front(std::vector<std::byte>& buffer, std::size_t& used) {
  if (used == buffer.size()) {
    buffer.clear();
    if (buffer.capacity() > kept_capacity_bytes) { buffer.shrink_to_fit(); }
  } else {
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(used));
  }
  used = 0;
}

}  // namespace

void finish_frame(std::vector<std::byte>& into, std::size_t frame_start, FrameHeader header) {
  const std::size_t payload_bytes = into.size() - frame_start - frame_header_bytes;
  if (payload_bytes > frame_payload_bytes_max) { throw std::length_error("a message is larger than a frame may be"); }
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  encode_header(header, std::span<std::byte, frame_header_bytes>(into.data() + frame_start, frame_header_bytes));
}

// The input keeps its size between calls: growing a vector writes zeros, which would cost more than the call. A
// large frame says in its header how much room it needs, so that it grows once.
void FrameStream::make_room() {
  const std::size_t waiting = filled_ - consumed_;
  if (waiting == 0) { consumed_ = filled_ = 0; }
  const std::size_t wanted = std::max(receive_bytes_min, frame_bytes_ > waiting ? frame_bytes_ - waiting : 0);
  if (input_.size() - filled_ >= wanted) { return; }
  if (consumed_ > 0) {
    std::memmove(input_.data(), input_.data() + consumed_, waiting);
    filled_ = waiting;
    consumed_ = 0;
  }
  if (input_.size() - filled_ < wanted) { input_.resize(filled_ + wanted); }
}

void FrameStream::shrink() {
  if (consumed_ == filled_ && input_.size() > receive_bytes_min) {
    input_ = {};
    consumed_ = filled_ = 0;
  }
}

FrameStream::Received FrameStream::receive() {
  make_room();
  iovec part{input_.data() + filled_, std::min(input_.size() - filled_, receive_bytes_max)};
  Control control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors_ == Descriptors::taken) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
  }
  ssize_t count = 0;
  do { count = ::recvmsg(socket_.number(), &message, MSG_CMSG_CLOEXEC); } while (count < 0 && errno == EINTR);
  if (count > 0) {
    filled_ += static_cast<std::size_t>(count);
    collect_descriptors(message, received_);
    return Received::some;
  }
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Received::nothing_yet : Received::ended;
}

FrameStream::Next FrameStream::next(Frame& frame, std::uint32_t payload_bytes_max) {
  const ConstBytes waiting = ConstBytes(input_).subspan(consumed_, filled_ - consumed_);
  if (error_ != FrameError::none) { return Next::malformed; }
  if (waiting.size() < frame_header_bytes) { return Next::incomplete; }
  const ParsedHeader parsed = parse_header(waiting.first<frame_header_bytes>());
  error_ = parsed.error;
  if (error_ == FrameError::none && parsed.header.payload_bytes > payload_bytes_max) { error_ = FrameError::too_large; }
  if (error_ != FrameError::none) { return Next::malformed; }
  const std::size_t frame_bytes = frame_header_bytes + parsed.header.payload_bytes;
  frame_bytes_ = waiting.size() < frame_bytes ? frame_bytes : 0;
  if (frame_bytes_ != 0) { return Next::incomplete; }
  frame = {parsed.header, waiting.subspan(frame_header_bytes, parsed.header.payload_bytes)};
  consumed_ += frame_bytes;
  return Next::frame;
}

Descriptor FrameStream::take_descriptor() {
  if (received_.empty()) { return {}; }
  Descriptor first = std::move(received_.front());
  received_.pop_front();
  return first;
}

bool FrameStream::flush() {
  while (sent_ < output_.size()) {
    ConstBytes bytes = ConstBytes(output_).subspan(sent_);
    const bool with_file = !attached_.empty() && attached_.front().first == sent_;
    const std::size_t next_file = with_file ? 1 : 0;
    if (attached_.size() > next_file) {  // stop before the byte that the next file goes with
      bytes = bytes.first(attached_[next_file].first - sent_);
    }
    const ssize_t count = send_with(socket_, bytes, with_file ? attached_.front().second.number() : -1);
    if (count < 0 && errno == EINTR) { continue; }
    if (count < 0) { return errno == EAGAIN || errno == EWOULDBLOCK; }
    if (with_file) { attached_.pop_front(); }
    sent_ += static_cast<std::size_t>(count);
  }
  drop_front(output_, sent_);
  return true;
}

}  // namespace moonpool
