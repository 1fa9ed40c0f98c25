// Put: reserve, copy, commit, a window of the batch at a time; small values in one message.
#include <algorithm>
#include <stdexcept>

#include "io/batch.hpp"
#include "io/piece_copy.hpp"

namespace moonpool {
namespace {

constexpr std::uint64_t write_bytes = 1U << 20U;  // of one message over a socket
// More small values than this go through shared memory like large ones: a second round trip costs less than
// carrying the bytes through the socket (64 values of 4 KiB: 25 us against more than 500).
constexpr std::uint64_t carried_bytes_max = 64U << 10U;

class PutRun {
 public:
  PutRun(NodeClient& client, Session& session, const Values& values, const PutSettings& settings, Deadline deadline)
      : client_(client), session_(session), values_(values), settings_(settings), deadline_(deadline) {
    report_.items.resize(values.count());
    report_.incarnation = session.info().incarnation;
  }

  PutReport run() {
    std::vector<std::size_t> waiting = admissible();
    // In the caller's order, a run of small values and a run of large ones at a time: parents come before children.
    for (std::size_t begin = 0; begin < waiting.size() && failure_ == Reason::none;) {
      const bool small = is_small(waiting[begin]);
      std::size_t end = begin;
      while (end < waiting.size() && is_small(waiting[end]) == small) { ++end; }
      const auto at = waiting.begin();
      const std::vector<std::size_t> run(at + static_cast<std::ptrdiff_t>(begin),
                                         at + static_cast<std::ptrdiff_t>(end));
      put_run(run, small && is_carried(run));
      begin = end;
    }
    for (const std::size_t index : waiting) {
      KeyPut& item = report_.items[index];
      if (item.status == Status::refused && item.reason == Reason::unavailable && failure_ != Reason::none) {
        item.reason = failure_;
      }
    }
    return std::move(report_);
  }

 private:
  [[nodiscard]] bool is_small(std::size_t index) const {
    return values_.lengths[index] <= session_.info().small_put_bytes_max;
  }

  [[nodiscard]] bool is_carried(std::span<const std::size_t> run) const {
    std::uint64_t total = 0;
    for (const std::size_t index : run) { total += values_.lengths[index]; }
    return total <= carried_bytes_max || !(client_.uses_shared_memory(session_) || client_.rails().possible());
  }

  // What no node would take is refused here, before anything is asked.
  [[nodiscard]] std::vector<std::size_t> admissible() {
    const std::vector<std::uint64_t>& arenas = session_.info().arena_bytes;
    const std::uint64_t largest = arenas.empty() ? 0 : *std::max_element(arenas.begin(), arenas.end());
    std::vector<std::size_t> waiting;
    waiting.reserve(values_.count());
    for (std::size_t index = 0; index < values_.count(); ++index) {
      const std::uint64_t length = values_.lengths[index];
      if (values_.keys[index].size() > key_bytes_max) {
        report_.items[index].reason = Reason::key_too_long;
      } else if (length > largest || largest - length < object_header_bytes) {
        report_.items[index].reason = Reason::value_too_large;
      } else {
        waiting.push_back(index);
      }
    }
    return waiting;
  }

  void put_run(std::vector<std::size_t> indexes, bool small) {
    Windows windows(std::move(indexes));
    while (!windows.empty() && failure_ == Reason::none) {
      const auto window = windows.take([&](std::size_t index) {
        const std::uint64_t length = values_.lengths[index];
        return std::pair(item_bytes + values_.keys[index].size() + (small ? length : 0), length);
      });
      if (deadline_.passed()) {
        failure_ = Reason::timed_out;
      } else if (small) {
        put_small(window);
      } else {
        put_large({window.begin(), window.end()});
      }
    }
  }

  [[nodiscard]] PutSpec spec_of(std::size_t index) const {
    const KeyRef key = key_ref(client_.peer(), session_, values_.keys[index]);
    PutSpec spec;
    spec.digest = key.digest;
    spec.key = key.key;
    spec.length = values_.lengths[index];
    spec.tag = settings_.tags.empty() ? Tag{} : settings_.tags[index];
    spec.bundle_id = settings_.bundle_id;
    spec.bundle_count = settings_.bundle_count;
    spec.priority = settings_.priority;
    spec.keep_at_least_ms = settings_.keep_at_least_ms;
    spec.keep_at_most_ms = settings_.keep_at_most_ms;
    return spec;
  }

  template <class Message>
  std::optional<ReserveReply> ask(MessageType type, const Message& message, std::size_t count) {
    const Answer answer = client_.peer().call(session_, type, message, deadline_);
    std::optional<ReserveReply> reply = decoded<ReserveReply>(answer);
    if (!reply || reply->items.size() != count) {
      failure_ = reason_of(answer);
      return std::nullopt;
    }
    return reply;
  }

  void note(std::size_t index, const ReserveResult& result, std::uint32_t checksum) {
    KeyPut& item = report_.items[index];
    item.status = result.status;
    item.reason = result.reason;
    const bool resident = result.status == Status::present || result.status == Status::conflict;
    item.length = resident ? result.present_length : values_.lengths[index];
    item.checksum = resident ? result.present_checksum : checksum;
    item.generation = result.generation;
  }

  void put_small(std::span<const std::size_t> window) {
    std::uint64_t total = 0;
    for (const std::size_t index : window) { total += values_.lengths[index]; }
    std::vector<std::byte> bytes(total);
    PutInline message;
    message.incarnation = session_.info().incarnation;
    message.items.reserve(window.size());
    MutableBytes rest(bytes);
    for (const std::size_t index : window) {
      const MutableBytes target = rest.first(values_.lengths[index]);
      rest = rest.subspan(target.size());
      Gather gather(values_.pieces_of(index));
      gather.next(target);
      message.items.push_back({spec_of(index), gather.checksum(), target});
    }
    const std::optional<ReserveReply> reply = ask(MessageType::put_inline, message, window.size());
    for (std::size_t at = 0; reply && at < window.size(); ++at) {
      note(window[at], reply->items[at], message.items[at].checksum);
    }
  }

  // A place that was reserved for a value.
  struct Place {
    std::size_t index;
    ReserveResult result;
    Digest grant;  // where by_rails_
  };

  // As much of it at a time as the caps per connection allow: what was refused for them is tried again as long
  // as something gets done.
  void put_large(std::vector<std::size_t> window) {
    while (!window.empty() && failure_ == Reason::none) {
      Reserve message;
      message.incarnation = session_.info().incarnation;
      message.arena_preferred = session_.info().connection;
      message.items.reserve(window.size());
      for (const std::size_t index : window) { message.items.push_back(spec_of(index)); }
      const std::optional<ReserveReply> reply = ask(MessageType::reserve, message, window.size());
      if (!reply) { return; }
      by_rails_ = !reply->grants.empty() && client_.rails().ready(deadline_);
      std::vector<std::size_t> again;
      std::vector<Place> places;
      for (std::size_t at = 0; at < window.size(); ++at) {
        const ReserveResult& result = reply->items[at];
        if (result.status == Status::stored) {
          places.push_back({window[at], result, by_rails_ ? reply->grants[at] : Digest{}});
        } else {
          note(window[at], result, 0);
          if (result.status == Status::refused && result.reason == Reason::connection_limit) {
            again.push_back(window[at]);
          }
        }
      }
      write_and_commit(places);
      window = places.empty() ? std::vector<std::size_t>{} : std::move(again);
    }
  }

  void write_and_commit(std::span<const Place> places) {
    Commit commit;
    Abort abort;
    commit.incarnation = abort.incarnation = session_.info().incarnation;
    std::vector<std::size_t> written;
    const std::vector<RemoteMoved> moved = by_rails_ ? write_over_rails(places) : std::vector<RemoteMoved>{};
    for (std::size_t at = 0; at < places.size(); ++at) {
      const Place& place = places[at];
      const RemoteMoved outcome = by_rails_ ? moved[at] : write(place);
      if (outcome.reason == Reason::none) {
        commit.items.push_back({place.result.generation, outcome.checksum});
        written.push_back(place.index);
      } else {
        report_.items[place.index].reason = outcome.reason;
        abort.generations.push_back(place.result.generation);
      }
    }
    if (!commit.items.empty()) {
      const std::optional<ReserveReply> reply = ask(MessageType::commit, commit, written.size());
      for (std::size_t at = 0; reply && at < written.size(); ++at) {
        note(written[at], reply->items[at], commit.items[at].checksum);
      }
    }
    if (!abort.generations.empty()) { session_.post(MessageType::abort, abort); }
  }

  std::vector<RemoteMoved> write_over_rails(std::span<const Place> places) {
    std::vector<RemoteValue> values;
    values.reserve(places.size());
    for (const Place& place : places) { values.push_back({place.grant, values_.pieces_of(place.index)}); }
    return client_.rails().write(values, deadline_);
  }

  RemoteMoved write(const Place& place) {
    RemoteMoved outcome;
    outcome.reason = deadline_.passed() ? Reason::timed_out : write(place.index, place.result, outcome.checksum);
    return outcome;
  }

  Reason write(std::size_t index, const ReserveResult& place, std::uint32_t& checksum) {
    if (place.extent.length != values_.lengths[index]) { return Reason::protocol; }
    if (!client_.uses_shared_memory(session_)) { return write_over_socket(index, place.generation, checksum); }
    const Session::Arena arena = session_.arena(place.extent.arena_index, Mapping::Access::write, deadline_);
    if (!arena.mapping) { return arena.reason; }
    Gather gather(values_.pieces_of(index));
    gather.next(arena.mapping->mutable_bytes(place.extent.offset, place.extent.length));
    checksum = gather.checksum();
    return Reason::none;
  }

  Reason write_over_socket(std::size_t index, Generation generation, std::uint32_t& checksum) {
    Gather gather(values_.pieces_of(index));
    std::vector<std::byte> chunk(std::min(values_.lengths[index], write_bytes));
    for (std::uint64_t offset = 0; offset < values_.lengths[index]; offset += chunk.size()) {
      const MutableBytes bytes =
          MutableBytes(chunk).first(std::min<std::uint64_t>(chunk.size(), values_.lengths[index] - offset));
      gather.next(bytes);
      Write message{session_.info().incarnation, generation, offset, bytes};
      const Answer answer = client_.peer().call(session_, MessageType::write, message, deadline_);
      const std::optional<Outcomes> reply = decoded<Outcomes>(answer);
      if (!reply || reply->items.size() != 1) { return reason_of(answer); }
      if (reply->items[0].status != Status::done) { return reply->items[0].reason; }
    }
    checksum = gather.checksum();
    return Reason::none;
  }

  NodeClient& client_;
  Session& session_;
  const Values& values_;
  const PutSettings& settings_;
  Deadline deadline_;
  PutReport report_;
  bool by_rails_ = false;          // the bytes of this window
  Reason failure_ = Reason::none;  // the node can no longer be asked: nothing more is tried
};

}  // namespace

PutReport NodeClient::put(const Values& values, const PutSettings& settings, Deadline deadline) {
  if (!settings.tags.empty() && settings.tags.size() != values.count()) {
    throw std::invalid_argument("as many tags as keys are needed, or none");
  }
  const Session::Opened opened = peer_.session(deadline);
  if (opened.session) { return PutRun(*this, *opened.session, values, settings, deadline).run(); }
  PutReport report;
  report.items.resize(values.count());
  for (KeyPut& item : report.items) { item.reason = opened.reason; }
  return report;
}

}  // namespace moonpool
