#include "io/peer_client.hpp"

#include <stdexcept>

namespace moonpool {

PeerClient::PeerClient(PeerOptions options) : options_(std::move(options)) {
  auto first = std::make_unique<State>();
  first->fork_count = fork_count();
  state_.store(first.get());
  states_.push_back(std::move(first));
}

PeerClient::~PeerClient() {
  // A parent's state may hold locks that no thread of this process will ever give back: it stays as it is.
  for (std::unique_ptr<State>& one : states_) {
    if (one->fork_count != fork_count()) { (void)one.release(); }
  }
}

PeerClient::State& PeerClient::state() {
  State* current = state_.load();
  if (current->fork_count == fork_count()) { return *current; }
  auto fresh = std::make_unique<State>();
  fresh->fork_count = fork_count();
  {
    // The description was not being changed by the forking thread, and no other thread came along.
    fresh->description = current->description;
  }
  if (state_.compare_exchange_strong(current, fresh.get())) {
    const std::lock_guard lock(states_mutex_);
    states_.push_back(std::move(fresh));
  }
  return *state_.load();
}

std::shared_ptr<Session> PeerClient::living(State& state) {
  const std::lock_guard lock(state.mutex);
  return state.session && state.session->alive() ? state.session : nullptr;
}

Session::Opened PeerClient::connect(std::uint64_t timeout_ms) {
  connect_called_.store(true);
  {
    State& current = state();
    const std::lock_guard lock(current.mutex);
    current.breaker.answered();  // who asks for a connection by name gets a try
  }
  return session(Deadline::after_ms(timeout_ms));
}

Session::Opened PeerClient::session(Deadline deadline) {
  if (closed()) { throw std::logic_error("the client is closed"); }
  if (!connect_called_.load()) { throw std::logic_error("connect() comes first"); }
  State& current = state();
  if (std::shared_ptr<Session> session = living(current)) { return {std::move(session), Reason::none, {}}; }
  return reconnect(current, deadline);
}

Session::Opened PeerClient::reconnect(State& current, Deadline deadline) {
  const Turn::Guard turn = current.connecting.take(deadline);
  if (!turn) { return {nullptr, Reason::timed_out, "another thread is still connecting"}; }
  if (std::shared_ptr<Session> session = living(current)) { return {std::move(session), Reason::none, {}}; }
  {
    const std::lock_guard lock(current.mutex);
    if (current.breaker.open(steady_us())) {
      return {nullptr, Reason::unavailable, text_of(options_.address) + " did not answer a moment ago"};
    }
  }
  Session::Opened opened = Session::open(options_, deadline.sooner(Deadline::after_ms(options_.connect_timeout_ms)));
  std::string description;
  std::shared_ptr<Session> before;  // its end may say goodbye: outside the lock
  {
    const std::lock_guard lock(current.mutex);
    if (!opened.session) {
      current.breaker.failed(steady_us());
      return opened;
    }
    current.breaker.answered();
    before = std::exchange(current.session, opened.session);
    ++current.connect_count;
    description = current.description;
  }
  if (!description.empty()) {
    Describe message;
    message.document = description;
    opened.session->post(MessageType::describe, message);
  }
  return opened;
}

void PeerClient::close() {
  if (closed_.exchange(true)) { return; }
  State& current = state();
  std::shared_ptr<Session> session;
  const std::lock_guard lock(current.mutex);
  session.swap(current.session);  // views may keep it: its goodbye is said when the last of them is gone
}

bool PeerClient::connected() { return !closed() && living(state()) != nullptr; }

std::shared_ptr<Session> PeerClient::last_session() {
  State& current = state();
  const std::lock_guard lock(current.mutex);
  return current.session;
}

std::uint64_t PeerClient::reconnect_count() {
  State& current = state();
  const std::lock_guard lock(current.mutex);
  return current.connect_count == 0 ? 0 : current.connect_count - 1;
}

Answer PeerClient::unanswered(const Session::Opened& opened) {
  Answer answer;
  answer.reason = opened.reason;
  answer.message = opened.message;
  return answer;
}

std::optional<Answer> PeerClient::refuse_if_silent(Session& session) {
  State& current = state();
  {
    const std::lock_guard lock(current.mutex);
    if (!current.breaker.open(steady_us())) { return std::nullopt; }
  }
  if (!session.drain()) {
    Answer refused;
    refused.reason = Reason::unavailable;
    refused.message = text_of(options_.address) + " has not answered for a while";
    return refused;
  }
  const std::lock_guard lock(current.mutex);
  current.breaker.answered();
  return std::nullopt;
}

Answer PeerClient::noted(Answer answer) {
  const bool silent = answer.reason == Reason::timed_out && answer.asked;  // it took the question and said nothing
  if (answer.reason != Reason::none && !silent) { return answer; }
  State& current = state();
  const std::lock_guard lock(current.mutex);
  if (answer.reason == Reason::none) {
    current.breaker.answered();
  } else {
    current.breaker.failed(steady_us());
  }
  return answer;
}

Answer PeerClient::ask_empty(MessageType type, Deadline deadline) {
  const Session::Opened opened = session(deadline);
  if (!opened.session) { return unanswered(opened); }
  if (std::optional<Answer> refused = refuse_if_silent(*opened.session)) { return *std::move(refused); }
  return noted(opened.session->call_empty(type, deadline));
}

bool PeerClient::describe(std::string_view document, Deadline deadline) {
  if (document.size() > document_bytes_max) {
    throw std::invalid_argument("a description has at most " + std::to_string(document_bytes_max) + " bytes");
  }
  {
    State& current = state();
    const std::lock_guard lock(current.mutex);
    current.description = document;
  }
  Describe message;
  message.document = document;
  return ask(MessageType::describe, message, deadline).reason == Reason::none;
}

}  // namespace moonpool
