// How a session begins, and how it comes to the segment's memory.
#include <cerrno>
#include <system_error>

#include "core/catalogue.hpp"
#include "io/handshake.hpp"
#include "io/session.hpp"
#include "io/socket.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t heartbeat_ms = 1'000;
constexpr std::uint32_t silent_beats_max = 5;

}  // namespace

Session::Opened Session::open(const PeerOptions& options, Deadline deadline) {
  Descriptor socket = connect_peer(options.address, deadline);
  const std::string where = text_of(options.address);
  if (!socket.open()) {
    const Reason why = errno == ETIMEDOUT ? Reason::timed_out : Reason::unavailable;
    return {nullptr, why, "nobody answers at " + where + ": " + std::generic_category().message(errno)};
  }
  auto session = std::make_shared<Session>(std::move(socket));
  std::string message;
  const Reason reason = session->greet(options, deadline, message);
  if (reason != Reason::none) {
    session->broken_.store(true);
    return {nullptr, reason, message.empty() ? "no welcome from " + where + " in time" : message};
  }
  if (options.address.remote()) { session->begin_heartbeat(); }
  if (session->info_.shared_memory) { session->take_catalogue(deadline); }
  return {std::move(session), Reason::none, {}};
}

Reason Session::greet(const PeerOptions& options, Deadline deadline, std::string& message) {
  ProofInput input;
  input.secret = options.secret;
  input.client_nonce = random_nonce();
  Hello hello;
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.nonce = input.client_nonce;
  hello.tenant = options.tenant;
  hello.name = options.name;
  const Answer challenged = call(MessageType::hello, hello, deadline);
  if (challenged.reason != Reason::none) {
    message = challenged.message;
    return challenged.reason;
  }
  Reader reader(challenged.payload);
  const std::optional<Challenge> challenge = Challenge::decode(reader);
  if (!challenge || challenge->version < wire_version_min || challenge->version > wire_version_max) {
    message = "the peer's challenge is malformed or of an unknown version";
    return Reason::protocol;
  }
  version_ = challenge->version;
  input.server_nonce = challenge->nonce;
  Authenticate proof;
  proof.proof = client_proof(input, options.tenant, options.name);
  return take_welcome(call(MessageType::authenticate, proof, deadline), server_proof(input), message);
}

Reason Session::take_welcome(const Answer& answer, const Digest& proof, std::string& message) {
  if (answer.reason != Reason::none) {
    message = answer.message;
    return answer.reason;
  }
  Reader reader(answer.payload);
  const std::optional<Welcome> welcome = Welcome::decode(reader);
  if (!welcome) {
    message = "the peer's welcome is malformed";
    return Reason::protocol;
  }
  if (!equal_proofs(welcome->proof, proof)) {
    message = "the peer does not know the secret of this pool";
    return Reason::access_denied;
  }
  info_ = {welcome->incarnation,         welcome->tenant_id,
           welcome->connection,          welcome->shared_memory,
           welcome->small_put_bytes_max, std::string(welcome->node_name),
           std::string(welcome->site),   std::string(welcome->address),
           welcome->arena_bytes};
  readable_.resize(info_.arena_bytes.size());
  writable_.resize(info_.arena_bytes.size());
  return Reason::none;
}

Session::Arena Session::arena(std::uint32_t index, Mapping::Access access, Deadline deadline) {
  if (index >= info_.arena_bytes.size()) { return {nullptr, Reason::protocol}; }
  std::vector<std::shared_ptr<Mapping>>& known = access == Mapping::Access::write ? writable_ : readable_;
  {
    const std::lock_guard lock(arenas_mutex_);
    if (known[index]) { return {known[index], Reason::none}; }
  }
  Arena made = map({index, access == Mapping::Access::write}, deadline);
  if (!made.mapping) { return made; }
  if (made.mapping->byte_count() != info_.arena_bytes[index]) { return {nullptr, Reason::protocol}; }
  const std::lock_guard lock(arenas_mutex_);
  if (!known[index]) {
    known[index] = made.mapping;
    keep(made.mapping);
  }
  return {known[index], Reason::none};
}

Session::Arena Session::map(const ArenaRequest& request, Deadline deadline) {
  const Answer answer = call(MessageType::arena, request, deadline);
  if (answer.reason != Reason::none) { return {nullptr, answer.reason}; }
  Reader reader(answer.payload);
  const std::optional<ArenaReply> reply = ArenaReply::decode(reader);
  if (!reply || reply->outcome.status != Status::done || !answer.file.open() || reply->bytes == 0) {
    return {nullptr, Reason::protocol};
  }
  const auto access = request.writable ? Mapping::Access::write : Mapping::Access::read;
  try {
    return {std::make_shared<Mapping>(answer.file, reply->bytes, access), Reason::none};
  } catch (const std::system_error&) {
    return {nullptr, Reason::unavailable};  // a limit of this process on its address space
  }
}

void Session::take_catalogue(Deadline deadline) {
  Arena made = map({catalogue_arena, false}, deadline);
  if (made.mapping && is_catalogue_word_count(made.mapping->words().size())) { catalogue_ = std::move(made.mapping); }
}

std::shared_ptr<Mapping> Session::catalogue() {
  const std::lock_guard lock(arenas_mutex_);
  return catalogue_;
}

void Session::keep(const std::shared_ptr<Mapping>& mapping) {
  if (!keeper_) {
    keeper_ = std::make_unique<Keeper>(stream_.socket(), [this] { forget_arenas(); });
  }
  keeper_->populate(mapping);
}

// A server knows a remote client's end by its silence only, and we a remote server's.
void Session::begin_heartbeat() {
  heartbeat_ = std::make_unique<Heartbeat>(heartbeat_ms, [this] { beat(); });
}

void Session::beat() noexcept {
  try {
    (void)drain();
    silent_beats_ = heard_.exchange(false) ? 0 : silent_beats_ + 1;
    if (silent_beats_ > silent_beats_max) { broken_.store(true); }
    if (broken_.load() || spoken_.exchange(false)) { return; }
    std::vector<std::byte> frame;
    append_empty_frame(frame, {0, static_cast<std::uint16_t>(MessageType::ping), version_});
    send_without_waiting({MessageType::ping, std::move(frame)});
  } catch (const std::exception&) {
    broken_.store(true);  // no memory for a heartbeat: the next call connects again
  }
}

// The peer is gone: what no view and no call uses goes back to the system.
void Session::forget_arenas() {
  broken_.store(true);
  const std::lock_guard lock(arenas_mutex_);
  for (std::vector<std::shared_ptr<Mapping>>* known : {&readable_, &writable_}) {
    for (std::shared_ptr<Mapping>& mapping : *known) { mapping.reset(); }
  }
  catalogue_.reset();
}

}  // namespace moonpool
