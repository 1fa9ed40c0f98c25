#include "io/peer_address.hpp"

#include <poll.h>

#include <cerrno>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "io/memory.hpp"
#include "io/quiet_thread.hpp"
#include "io/socket.hpp"

namespace moonpool {
namespace {

constexpr std::string_view unix_prefix = "unix:";
constexpr std::size_t questions_max = 16;  // names asked for at a time
constexpr std::uint64_t answer_good_us = 5'000'000;

// One name that is being asked for, or was answered a moment ago.
struct Question {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  std::uint64_t done_at_us = 0;
  std::vector<TcpTarget> targets;
};

struct Questions {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Question>> by_name;
  std::uint64_t fork_count = 0;
};

bool is_old(Question& question) {
  const std::lock_guard lock(question.mutex);
  return question.done && steady_us() > question.done_at_us + answer_good_us;
}

void ask(const std::shared_ptr<Question>& question, const TcpAddress& address) {
  quiet_thread([question, address] {
    std::vector<TcpTarget> targets = resolve_tcp(address);
    const std::lock_guard lock(question->mutex);
    question->targets = std::move(targets);
    question->done = true;
    question->done_at_us = steady_us();
    question->answered.notify_all();
  }).detach();
}

// The question under way, or a new one; null when too many are.
std::shared_ptr<Question> question_of(const TcpAddress& address) {
  static Questions questions;
  const std::lock_guard lock(questions.mutex);
  if (questions.fork_count != fork_count()) {  // the threads that asked are the parent's
    questions.by_name.clear();
    questions.fork_count = fork_count();
  }
  std::erase_if(questions.by_name, [](const auto& entry) { return is_old(*entry.second); });
  const std::string name = text_of(address);
  if (const auto found = questions.by_name.find(name); found != questions.by_name.end()) { return found->second; }
  if (questions.by_name.size() >= questions_max) { return nullptr; }
  auto question = std::make_shared<Question>();
  ask(question, address);
  questions.by_name.emplace(name, question);
  return question;
}

// Waits for the socket to be connected. 0, or why it is not.
int wait_connected(const Descriptor& socket, Deadline deadline) {
  pollfd state{socket.number(), POLLOUT, 0};
  int ready = 0;
  do {
    ready = ::poll(&state, 1, static_cast<int>((deadline.remaining_us() + 999) / 1'000));
  } while (ready < 0 && errno == EINTR && !deadline.passed());
  return ready == 1 ? connect_error(socket) : ETIMEDOUT;
}

}  // namespace

PeerAddress parse_peer_address(const std::string& text) {
  if (text.starts_with(unix_prefix)) { return {text.substr(unix_prefix.size()), {}}; }
  if (text.find('/') == std::string::npos) {
    if (std::optional<TcpAddress> tcp = parse_tcp_address(text)) { return {{}, *std::move(tcp)}; }
  }
  return {text, {}};
}

std::string text_of(const PeerAddress& address) {
  return address.remote() ? text_of(address.tcp) : std::string(unix_prefix) + address.path;
}

std::optional<std::vector<TcpTarget>> try_resolve(const TcpAddress& address) {
  if (std::vector<TcpTarget> numeric = resolve_numeric(address); !numeric.empty()) { return numeric; }
  const std::shared_ptr<Question> question = question_of(address);
  if (!question) { return std::vector<TcpTarget>{}; }
  const std::lock_guard lock(question->mutex);
  return question->done ? std::optional(question->targets) : std::nullopt;
}

std::vector<TcpTarget> resolve_within(const TcpAddress& address, Deadline deadline) {
  if (std::vector<TcpTarget> numeric = resolve_numeric(address); !numeric.empty()) { return numeric; }
  const std::shared_ptr<Question> question = question_of(address);
  if (!question) { return {}; }
  std::unique_lock lock(question->mutex);
  while (!question->done && !deadline.passed()) {
    question->answered.wait_for(lock, std::chrono::microseconds(deadline.remaining_us()));
  }
  return question->targets;
}

Descriptor connect_peer(const PeerAddress& address, Deadline deadline) {
  if (!address.remote()) { return connect_to(address.path); }
  const std::vector<TcpTarget> targets = resolve_within(address.tcp, deadline);
  int error = deadline.passed() ? ETIMEDOUT : EADDRNOTAVAIL;
  for (std::size_t index = 0; index < targets.size(); ++index) {
    // One address that swallows everything leaves time for the next.
    const std::uint64_t share_ms = deadline.remaining_us() / 1'000 / (targets.size() - index);
    Descriptor socket = begin_connect(targets[index], {});
    error = socket.open() ? wait_connected(socket, Deadline::after_ms(share_ms).sooner(deadline)) : errno;
    if (error == 0) { return socket; }
  }
  errno = error;
  return {};
}

}  // namespace moonpool
