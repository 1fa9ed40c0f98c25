// Frames over one non-blocking socket.
#pragma once

#include <deque>

#include "core/messages.hpp"
#include "io/descriptor.hpp"

namespace moonpool {

struct Frame {
  FrameHeader header;
  ConstBytes payload;  // points into the stream's input: good until the next receive()
};

// Appends one message, header and payload. Throws std::length_error past frame_payload_bytes_max.
void finish_frame(std::vector<std::byte>& into, std::size_t frame_start, FrameHeader header);
template <class Message>
void append_frame(std::vector<std::byte>& into, FrameHeader header, const Message& message) {
  const std::size_t start = into.size();
  into.resize(start + frame_header_bytes);
  try {
    Writer writer(into);
    message.encode(writer);
    finish_frame(into, start, header);
  } catch (...) {
    into.resize(start);  // half a frame would spoil all that follow
    throw;
  }
}
inline void append_empty_frame(std::vector<std::byte>& into, FrameHeader header) {
  const std::size_t start = into.size();
  into.resize(start + frame_header_bytes);
  finish_frame(into, start, header);
}

class FrameStream {
 public:
  // Whether descriptors that come with the bytes are wanted. Where they are not, the system closes them: a peer that
  // sends some must not fill this process's table of open files.
  enum class Descriptors : std::uint8_t { refused, taken };
  FrameStream(Descriptor socket, Descriptors descriptors) : socket_(std::move(socket)), descriptors_(descriptors) {}

  enum class Received : std::uint8_t { some, nothing_yet, ended };
  // Takes what is there, at most receive_bytes_max, and descriptors that came with it.
  Received receive();

  enum class Next : std::uint8_t { frame, incomplete, malformed };
  // The next whole frame of what was received. Malformed: error() says how; nothing more can be read.
  Next next(Frame& frame, std::uint32_t payload_bytes_max);
  [[nodiscard]] FrameError error() const { return error_; }
  // Gives large buffers back; for connections that have been silent for a while.
  void shrink();
  // Part of a frame has come, and not the rest.
  [[nodiscard]] bool has_partial_frame() const { return consumed_ < filled_; }
  // The oldest descriptor that came and was not taken; not open when there is none.
  [[nodiscard]] Descriptor take_descriptor();

  // Frames to send are appended here; flush() sends them.
  [[nodiscard]] std::vector<std::byte>& output() { return output_; }
  // To go with the frame that is appended next.
  void attach(Descriptor file) { attached_.emplace_back(output_.size(), std::move(file)); }
  // False: the connection is broken. What the socket did not take stays.
  bool flush();
  [[nodiscard]] std::size_t unsent_bytes() const { return output_.size() - sent_; }
  [[nodiscard]] const Descriptor& socket() const { return socket_; }
  // Ends the stream: the socket goes on without it.
  [[nodiscard]] Descriptor release_socket() { return std::move(socket_); }

 private:
  void make_room();

  Descriptor socket_;
  Descriptors descriptors_;
  std::vector<std::byte> input_;
  std::size_t filled_ = 0;
  std::size_t consumed_ = 0;
  std::size_t frame_bytes_ = 0;  // of the frame that is incomplete, when its header is known
  FrameError error_ = FrameError::none;
  std::deque<Descriptor> received_;
  std::vector<std::byte> output_;
  std::size_t sent_ = 0;
  std::deque<std::pair<std::size_t, Descriptor>> attached_;  // offset in output_ of the byte that it goes with
};

}  // namespace moonpool
