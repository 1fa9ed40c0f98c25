// What clients of nodes and of directories have in common: one session at a time, made again after the peer was
// away, a breaker that keeps callers from waiting for a dead peer, and a fresh start in a forked child.
#pragma once

#include "io/breaker.hpp"
#include "io/session.hpp"

namespace moonpool {

class PeerClient {
 public:
  explicit PeerClient(PeerOptions options);
  ~PeerClient();
  PeerClient(const PeerClient&) = delete;
  PeerClient& operator=(const PeerClient&) = delete;
  PeerClient(PeerClient&&) = delete;
  PeerClient& operator=(PeerClient&&) = delete;

  // The first connect; later ones happen by themselves.
  Session::Opened connect(std::uint64_t timeout_ms);
  void close();
  [[nodiscard]] bool closed() const { return closed_.load(); }
  [[nodiscard]] bool connected();
  // The session in use, connecting again where needed. Throws std::logic_error after close() and before connect().
  [[nodiscard]] Session::Opened session(Deadline deadline);
  // The last session, connected or not; null when there never was one.
  [[nodiscard]] std::shared_ptr<Session> last_session();
  [[nodiscard]] std::uint64_t reconnect_count();

  template <class Message>
  [[nodiscard]] Answer call(Session& session, MessageType type, const Message& message, Deadline deadline) {
    if (std::optional<Answer> refused = refuse_if_silent(session)) { return *std::move(refused); }
    return noted(session.call(type, message, deadline));
  }
  // Session and exchange in one, for messages that do not depend on the session.
  template <class Message>
  [[nodiscard]] Answer ask(MessageType type, const Message& message, Deadline deadline) {
    const Session::Opened opened = session(deadline);
    return opened.session ? call(*opened.session, type, message, deadline) : unanswered(opened);
  }
  [[nodiscard]] Answer ask_empty(MessageType type, Deadline deadline);
  // Sent now and after every connect.
  bool describe(std::string_view document, Deadline deadline);
  [[nodiscard]] const PeerOptions& options() const { return options_; }

 private:
  // All that locks or belongs to a connection: a forked child begins with a new one and never touches its parent's.
  struct State {
    Turn connecting;
    std::mutex mutex;
    std::shared_ptr<Session> session;
    Breaker breaker;
    std::string description;
    std::uint64_t connect_count = 0;
    std::uint64_t fork_count = 0;
  };
  [[nodiscard]] State& state();
  [[nodiscard]] std::shared_ptr<Session> living(State& state);
  [[nodiscard]] Session::Opened reconnect(State& state, Deadline deadline);
  [[nodiscard]] static Answer unanswered(const Session::Opened& opened);
  [[nodiscard]] std::optional<Answer> refuse_if_silent(Session& session);
  [[nodiscard]] Answer noted(Answer answer);

  PeerOptions options_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> connect_called_{false};
  std::atomic<State*> state_;
  std::mutex states_mutex_;                     // of states_; taken only at construction and in a forked child
  std::vector<std::unique_ptr<State>> states_;  // the last one is in use; a child keeps its parent's untouched
};

}  // namespace moonpool
