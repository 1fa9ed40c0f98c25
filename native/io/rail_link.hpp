// The active end of one rail: connects and proves who it is without waiting, then carries jobs in their order.
#pragma once

#include <array>
#include <atomic>
#include <deque>

#include "io/frame_stream.hpp"
#include "io/handshake.hpp"
#include "io/rail_batch.hpp"
#include "io/rail_pieces.hpp"
#include "io/tcp_socket.hpp"

namespace moonpool {

// All of it is the driver's, but for the counts of status().
class RailLink {
 public:
  enum class State : std::uint8_t { down, connecting, greeting, proving, up };
  struct Ended {
    RailJob job;
    Reason reason = Reason::none;
  };
  // group: the same number for all rails of one client.
  RailLink(const RailOptions& options, const RailRoute& route, std::uint64_t group);

  [[nodiscard]] State state() const { return state_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool up() const { return state() == State::up; }
  // Names the rail to its server; of the last time it was up.
  [[nodiscard]] ConnectionId connection() const { return connection_; }
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  // Only while down. When is the planner's business.
  void connect(std::uint64_t now_us);

  // Only while up.
  void push(RailJob job);
  [[nodiscard]] std::uint64_t inflight_bytes() const { return inflight_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t job_count() const { return jobs_.size(); }
  [[nodiscard]] bool idle() const { return jobs_.empty() && cancels_.empty(); }
  [[nodiscard]] std::uint64_t moved_us() const { return moved_us_; }
  // Connects, sends and receives as far as it goes; jobs that ended are appended. True: something moved. When the
  // connection ends the state is down, and take_jobs() has what it did not bring to an end.
  bool advance(std::uint64_t now_us, std::vector<Ended>& ended);
  void close();
  [[nodiscard]] std::deque<RailJob> take_jobs();
  // Jobs of the batch that are not sent are taken out, and appended to `unsent`; reads that are under way are received
  // into nothing. False: a write is (partly) sent, and only closing the connection ends it.
  [[nodiscard]] bool forget(const RailBatch* batch, std::vector<RailJob>& unsent);

  [[nodiscard]] int socket() const { return stream_ ? stream_->socket().number() : socket_.number(); }
  [[nodiscard]] short wanted_events() const;
  [[nodiscard]] RailStatus status() const;
  // Why the last try to connect failed.
  [[nodiscard]] Reason last_reason() const { return last_reason_; }
  [[nodiscard]] const std::string& last_message() const { return last_message_; }

 private:
  struct Sending {
    RailJob job;
    std::uint32_t number = 0;
    std::array<std::byte, rail_request_bytes> header{};
    std::uint64_t summed = 0;    // of a write's source
    std::uint64_t received = 0;  // of a read
  };
  bool open_socket();
  void advance_opening(std::uint64_t now_us);
  void take_frame(const Frame& frame, std::uint64_t now_us);
  void take_challenge(const Frame& frame);
  void take_welcome(const Frame& frame, std::uint64_t now_us);
  void failed(Reason reason, std::string message);
  void refused(const Frame& frame);
  [[nodiscard]] RailStep flush();
  [[nodiscard]] ConstBytes payload_of(Sending& sending, std::uint64_t skip) const;
  void sent(std::size_t count);
  [[nodiscard]] RailStep receive(std::vector<Ended>& ended);
  [[nodiscard]] RailStep receive_into_target();
  [[nodiscard]] bool consume(std::vector<Ended>& ended);
  [[nodiscard]] bool take_reply(const RailReply& reply, std::vector<Ended>& ended);
  void take_buffered();
  void received(ConstBytes bytes);
  void end_front(Reason reason, std::vector<Ended>& ended);
  [[nodiscard]] std::uint64_t coming_bytes() const { return jobs_.front().job.length - jobs_.front().received; }

  const RailOptions& options_;
  RailRoute route_;
  TcpAddress address_;
  std::uint64_t group_;
  std::atomic<State> state_{State::down};
  Descriptor socket_;                    // while connecting, and when up
  std::unique_ptr<FrameStream> stream_;  // while greeting
  std::vector<TcpTarget> targets_;
  std::size_t next_target_ = 0;
  ProofInput proof_;
  std::uint64_t opening_until_us_ = 0;
  Reason last_reason_ = Reason::none;
  std::string last_message_;
  ConnectionId connection_ = 0;
  std::uint64_t incarnation_ = 0;

  RailInput input_;
  std::deque<Sending> jobs_;             // in the order in which they go out, and in which they are answered
  std::deque<Sending> cancels_;          // sent; answered when the server can
  std::size_t send_index_ = 0;           // of the first of jobs_ that is not sent
  std::size_t front_sent_ = 0;           // bytes of that one that are sent
  bool data_coming_ = false;             // the header of the first job's bytes has come
  std::uint32_t last_number_ = 0;
  std::uint64_t moved_us_ = 0;
  std::atomic<std::uint64_t> inflight_bytes_{0}, read_bytes_{0}, written_bytes_{0}, failure_count_{0};
};

}  // namespace moonpool
