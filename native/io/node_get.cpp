// Get: hold, copy and verify, release; or keep the hold as a view.
#include <algorithm>

#include "core/checksum.hpp"
#include "io/batch.hpp"
#include "io/node_direct.hpp"
#include "io/piece_copy.hpp"
#include "io/segment.hpp"

namespace moonpool {
namespace {

constexpr std::uint32_t read_bytes = 1U << 20U;  // of one message over a socket
constexpr std::uint64_t hold_ms_max = 60'000;

class GetRun {
 public:
  GetRun(NodeClient& client, std::shared_ptr<Session> session, std::span<const std::string_view> keys,
         Deadline deadline)
      : client_(client), session_(std::move(session)), keys_(keys), deadline_(deadline) {
    report_.items.resize(keys.size());
  }
  virtual ~GetRun() = default;
  GetRun(const GetRun&) = delete;
  GetRun& operator=(const GetRun&) = delete;
  GetRun(GetRun&&) = delete;
  GetRun& operator=(GetRun&&) = delete;

  void run(bool view) {
    std::vector<std::size_t> waiting;
    read_directly();
    for (std::size_t index = 0; index < keys_.size(); ++index) {
      if (keys_[index].size() > key_bytes_max) {
        report_.items[index].reason = Reason::key_too_long;
      } else if (report_.items[index].status != Status::hit) {
        waiting.push_back(index);
      }
    }
    Windows windows(waiting);
    while (!windows.empty() && failure_ == Reason::none) {
      const auto window = windows.take(
          [&](std::size_t index) { return std::pair(item_bytes + keys_[index].size(), value_bytes(index)); });
      failure_ = deadline_.passed() ? Reason::timed_out : Reason::none;
      get_window({window.begin(), window.end()}, view);
    }
    for (const std::size_t index : waiting) {
      KeyRead& item = report_.items[index];
      if (item.status == Status::miss && item.reason == Reason::unavailable && failure_ != Reason::none) {
        item.reason = failure_;
      }
    }
  }
  [[nodiscard]] ReadReport& report() { return report_; }

 protected:
  [[nodiscard]] virtual std::uint64_t value_bytes(std::size_t index) const = 0;
  // Reads what needs no message.
  virtual void read_directly() {}
  // Uses the held object. True: its hold is kept by somebody; else it is released with the others.
  virtual bool use(std::size_t index, const HoldResult& held) = 0;
  // Where a value from another host is to go; empty: nowhere, and its result says why.
  virtual std::span<const Piece> target(std::size_t index, const HoldResult& held) = 0;
  // It is there, and right.
  virtual void took(std::size_t index, const HoldResult& held) = 0;

  void miss(std::size_t index, Reason reason) {
    report_.items[index].status = Status::miss;
    report_.items[index].reason = reason;
  }

  // Calls consume(bytes) for the held value, piece by piece.
  template <class Consume>
  Reason read_over_socket(const HoldResult& held, Consume consume) {
    for (std::uint64_t offset = 0; offset < held.extent.length; offset += read_bytes) {
      const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(read_bytes, held.extent.length - offset));
      Read message{session_->info().incarnation, held.generation, offset, count};
      const Answer answer = client_.peer().call(*session_, MessageType::read, message, deadline_);
      const std::optional<ReadReply> reply = decoded<ReadReply>(answer);
      if (!reply) { return reason_of(answer); }
      if (reply->outcome.status != Status::hit) {
        // It was ours a moment ago: the node took it back because we took too long.
        return reply->outcome.reason == Reason::not_yours ? Reason::deadline : reply->outcome.reason;
      }
      if (reply->bytes.size() != count) { return Reason::protocol; }
      consume(reply->bytes);
    }
    return Reason::none;
  }

  // The bytes do not fit. Was the object's space used again under us, or are they damaged?
  void mismatch(std::size_t index, bool still_there) {
    miss(index, still_there ? Reason::damaged : Reason::deadline);
    if (still_there) {
      Keys message;
      message.incarnation = session_->info().incarnation;
      message.keys.push_back(key_ref(client_.peer(), *session_, keys_[index]));
      session_->post(MessageType::damaged, message);  // the node looks itself
    }
  }

  NodeClient& client_;
  std::shared_ptr<Session> session_;
  std::span<const std::string_view> keys_;
  Deadline deadline_;
  ReadReport report_;

 private:
  // What the cap per connection refused is tried again as long as something gets done.
  void get_window(std::vector<std::size_t> window, bool view) {
    while (!window.empty() && failure_ == Reason::none) {
      Hold message;
      message.incarnation = session_->info().incarnation;
      message.view = view;
      message.deadline_ms = static_cast<std::uint32_t>(std::min(hold_ms_max, deadline_.remaining_us() / 1'000 + 1));
      message.keys.reserve(window.size());
      for (const std::size_t index : window) {
        message.keys.push_back(key_ref(client_.peer(), *session_, keys_[index]));
      }
      const Answer answer = client_.peer().call(*session_, MessageType::hold, message, deadline_);
      const std::optional<HoldReply> reply = decoded<HoldReply>(answer);
      if (!reply || reply->items.size() != window.size()) {
        failure_ = reason_of(answer);
        return;
      }
      window = use_window(window, *reply, view);
    }
  }

  struct Hit {
    std::size_t index;
    const HoldResult* held;
    Digest grant;
  };

  // All of them at once: what is under way fills the wire.
  void use_over_rails(std::span<const Hit> hits) {
    std::vector<RemoteValue> values;
    std::vector<const Hit*> wanted;
    for (const Hit& hit : hits) {
      const std::span<const Piece> pieces = target(hit.index, *hit.held);
      if (pieces.empty()) { continue; }
      values.push_back({hit.grant, pieces});
      wanted.push_back(&hit);
    }
    const std::vector<RemoteMoved> moved = client_.rails().read(values, deadline_);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      const Hit& hit = *wanted[at];
      if (moved[at].reason != Reason::none) {
        miss(hit.index, moved[at].reason);
      } else if (moved[at].checksum != hit.held->checksum) {
        mismatch(hit.index, true);
      } else {
        took(hit.index, *hit.held);
      }
    }
  }

  std::vector<std::size_t> use_window(const std::vector<std::size_t>& window, const HoldReply& reply, bool view) {
    std::vector<std::size_t> again;
    std::vector<Generation> done;
    std::vector<Hit> hits;
    const bool by_rails = !reply.grants.empty() && client_.rails().ready(deadline_);
    for (std::size_t at = 0; at < window.size(); ++at) {
      const std::size_t index = window[at];
      const HoldResult& held = reply.items[at];
      KeyRead& item = report_.items[index];
      item = {held.status, held.reason, held.extent.length, held.checksum, held.generation};
      if (held.status == Status::hit && by_rails) {
        hits.push_back({index, &held, reply.grants[at]});
        done.push_back(held.generation);
      } else if (held.status == Status::hit) {
        if (!use(index, held)) { done.push_back(held.generation); }
      } else if (held.reason == Reason::connection_limit && !view) {
        again.push_back(index);
      }
    }
    use_over_rails(hits);
    session_->release(done);
    return done.empty() ? std::vector<std::size_t>{} : again;
  }

  Reason failure_ = Reason::none;
};

class CopyRun final : public GetRun {
 public:
  CopyRun(NodeClient& client, std::shared_ptr<Session> session, const Values& values, Deadline deadline)
      : GetRun(client, std::move(session), values.keys, deadline), values_(values) {}

 private:
  [[nodiscard]] std::uint64_t value_bytes(std::size_t index) const override { return values_.lengths[index]; }

  void read_directly() override {
    if (!client_.uses_shared_memory(*session_)) { return; }
    DirectReader reader(*session_, client_.peer().options().secret, deadline_);
    if (!reader.usable()) { return; }
    reader.prepare(keys_);
    for (std::size_t index = 0; index < keys_.size(); ++index) {
      if (reader.copy(index, values_.pieces_of(index), values_.lengths[index], report_.items[index])) {
        report_.byte_count += values_.lengths[index];
      }
    }
  }

  bool use(std::size_t index, const HoldResult& held) override {
    if (!target(index, held).empty()) { copy(index, held); }
    return false;
  }

  std::span<const Piece> target(std::size_t index, const HoldResult& held) override {
    if (held.extent.length == values_.lengths[index] && !deadline_.passed()) { return values_.pieces_of(index); }
    miss(index, held.extent.length == values_.lengths[index] ? Reason::timed_out : Reason::wrong_length);
    return {};
  }

  void took(std::size_t, const HoldResult& held) override { report_.byte_count += held.extent.length; }

  void copy(std::size_t index, const HoldResult& held) {
    Scatter scatter(values_.pieces_of(index));
    Reason reason = Reason::none;
    bool still_there = true;
    if (client_.uses_shared_memory(*session_)) {
      const Session::Arena arena = session_->arena(held.extent.arena_index, Mapping::Access::read, deadline_);
      reason = arena.reason;
      if (arena.mapping) {
        scatter.next(arena.mapping->bytes(held.extent.offset, held.extent.length));
        still_there = is_still_there(*arena.mapping, held.extent, held.generation);
      }
    } else {
      reason = read_over_socket(held, [&](ConstBytes bytes) { scatter.next(bytes); });
    }
    if (reason != Reason::none) {
      miss(index, reason);
    } else if (!still_there || scatter.checksum() != held.checksum) {
      mismatch(index, still_there);
    } else {
      took(index, held);
    }
  }

  const Values& values_;
};

class ViewRun final : public GetRun {
 public:
  // verify: bytes that this session has not checked before are.
  ViewRun(NodeClient& client, std::shared_ptr<Session> session, std::span<const std::string_view> keys,
          Deadline deadline, bool verify)
      : GetRun(client, std::move(session), keys, deadline),
        verify_(verify),
        held_(keys.size()),
        copies_(keys.size()),
        places_(keys.size()) {}
  [[nodiscard]] std::vector<std::shared_ptr<HeldBytes>> take() { return std::move(held_); }

 private:
  [[nodiscard]] std::uint64_t value_bytes(std::size_t) const override { return 0; }

  bool use(std::size_t index, const HoldResult& held) override {
    return client_.uses_shared_memory(*session_) ? borrow(index, held) : fetch(index, held);
  }

  bool borrow(std::size_t index, const HoldResult& held) {
    const Session::Arena arena = session_->arena(held.extent.arena_index, Mapping::Access::read, deadline_);
    if (!arena.mapping) {
      miss(index, arena.reason);
      return false;
    }
    const ConstBytes bytes = arena.mapping->bytes(held.extent.offset, held.extent.length);
    if (verify_ && !session_->verified().contains(held.generation)) {
      if (crc32c(bytes) != held.checksum) {
        mismatch(index, is_still_there(*arena.mapping, held.extent, held.generation));
        return false;
      }
      session_->verified().add(held.generation);
    }
    held_[index] = std::make_shared<HeldBytes>(session_, arena.mapping, bytes, report_.items[index]);
    report_.byte_count += bytes.size();
    return true;
  }

  bool fetch(std::size_t index, const HoldResult& held) {
    std::vector<std::byte>& copy = copies_[index];
    const Reason reason =
        read_over_socket(held, [&](ConstBytes bytes) { copy.insert(copy.end(), bytes.begin(), bytes.end()); });
    if (reason != Reason::none) {
      miss(index, reason);
    } else if (crc32c(copy) != held.checksum) {
      mismatch(index, true);
    } else {
      took(index, held);
    }
    return false;
  }

  std::span<const Piece> target(std::size_t index, const HoldResult& held) override {
    const std::vector<std::uint64_t>& arenas = session_->info().arena_bytes;
    if (std::none_of(arenas.begin(), arenas.end(), [&](std::uint64_t bytes) { return held.extent.length < bytes; })) {
      miss(index, Reason::protocol);  // no value is longer than an arena
      return {};
    }
    copies_[index].resize(held.extent.length);
    places_[index] = {address_of(copies_[index]), held.extent.length};
    return std::span(&places_[index], 1);
  }

  void took(std::size_t index, const HoldResult& held) override {
    report_.byte_count += held.extent.length;
    held_[index] = std::make_shared<HeldBytes>(std::move(copies_[index]), report_.items[index]);
  }

  bool verify_;
  std::vector<std::shared_ptr<HeldBytes>> held_;
  std::vector<std::vector<std::byte>> copies_;  // where nothing can be mapped
  std::vector<Piece> places_;                   // of the copies
};

ReadReport unanswered(std::size_t count, Reason reason) {
  ReadReport report;
  report.items.resize(count);
  for (KeyRead& item : report.items) { item.reason = reason; }
  return report;
}

}  // namespace

ReadReport NodeClient::get_into(const Values& values, Deadline deadline) {
  Session::Opened opened = peer_.session(deadline);
  if (!opened.session) { return unanswered(values.count(), opened.reason); }
  CopyRun run(*this, std::move(opened.session), values, deadline);
  run.run(false);
  return std::move(run.report());
}

Views NodeClient::get_views(std::span<const std::string_view> keys, bool verify, Deadline deadline) {
  Session::Opened opened = peer_.session(deadline);
  Views views;
  if (!opened.session) {
    views.held.resize(keys.size());
    views.report = unanswered(keys.size(), opened.reason);
    return views;
  }
  ViewRun run(*this, std::move(opened.session), keys, deadline, verify);
  run.run(true);
  views.report = std::move(run.report());
  views.held = run.take();
  return views;
}

}  // namespace moonpool
