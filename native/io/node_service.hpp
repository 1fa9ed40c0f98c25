// What a node does with its connections' messages: the truth about its bytes, one thread.
#pragma once

#include <array>
#include <atomic>
#include <set>

#include "core/block_index.hpp"
#include "io/grants.hpp"
#include "io/json.hpp"
#include "io/node_options.hpp"
#include "io/publisher.hpp"
#include "io/rail_server.hpp"
#include "io/segment.hpp"
#include "io/shared_catalogue.hpp"

namespace moonpool {

class NodeService final : public Service {
 public:
  NodeService(EventLoop& loop, const NodeOptions& options, Segment& segment,
              const std::atomic<std::uint64_t>& populated_bytes);
  ~NodeService() override;

  void start();  // listens; throws std::system_error
  void stop();
  // The segment is populated: from now on puts are taken.
  void set_populated() { populated_ = true; }
  void set_memory_refused() { memory_refused_ = true; }
  [[nodiscard]] std::string status(std::size_t byte_count_max) const;
  [[nodiscard]] CounterMap counters() const;
  [[nodiscard]] std::string check_integrity() const;

  void admit(Connection& connection) override;
  Welcome welcome(const Connection& connection) override;
  void admitted(Connection& connection) override;
  void serve(Connection& connection, const Frame& frame) override;
  bool lost(Connection& connection) override;
  void gone(ConnectionId connection) override;
  void take_rail(ProvenRail rail) override;

 private:
  // Remote connections: what they hold and reserve is granted to their rails, and ends when nobody is inside.
  void grant_holds(const Connection& connection, const Hold& request, HoldReply& answer);
  void grant_reservations(const Connection& connection, ReserveReply& answer);
  // False: it is not to be let go now; a rail is inside, or it is not this connection's.
  [[nodiscard]] bool end_grant(const Connection& connection, Generation generation);
  void end_expired_grants(std::uint64_t now_ms);
  void settle_vacated();
  void let_go(const Grants::Vacated& vacated);
  void drop_leaving(ConnectionId connection);
  void serve_object_verb(Connection& connection, const Frame& frame);
  void serve_other_verb(Connection& connection, const Frame& frame);
  void reserve(Connection& connection, const Frame& frame);
  void commit(Connection& connection, const Frame& frame);
  void abort(Connection& connection, const Frame& frame);
  void put_inline(Connection& connection, const Frame& frame);
  void write(Connection& connection, const Frame& frame);
  void hold(Connection& connection, const Frame& frame);
  void release(Connection& connection, const Frame& frame);
  void touched(Connection& connection, const Frame& frame);
  void read(Connection& connection, const Frame& frame);
  void exists(Connection& connection, const Frame& frame);
  void change_keys(Connection& connection, const Frame& frame);  // remove, pin, unpin
  void why(Connection& connection, const Frame& frame);
  void damaged(Connection& connection, const Frame& frame);
  void clear(Connection& connection, const Frame& frame);
  void list(Connection& connection, const Frame& frame);
  void match(Connection& connection, const Frame& frame);
  void describe(Connection& connection, const Frame& frame);
  void stat(Connection& connection, const Frame& frame);
  void arena(Connection& connection, const Frame& frame);

  ReserveResult reserve_one(const Connection& connection, PutSpec& spec, std::uint32_t arena_preferred);
  ReserveResult commit_one(Connection& connection, const CommitItem& item);
  ReserveResult put_one(Connection& connection, InlineItem& item);
  // Is the digest of this principal's making? The home tenant's is believed: a wrong one harms itself only.
  bool fits(const Connection& connection, const KeyRef& key);
  bool is_current(std::uint64_t incarnation);
  void count_read(Connection& connection, const HoldResult& result);
  void count_refused(Connection& connection, const ReserveResult& result);
  void invalidate_freed();
  void settle();
  void tick();
  bool work();
  void write_connections(JsonWriter& json, bool with_descriptions) const;
  void write_directories(JsonWriter& json) const;
  void write_segment(JsonWriter& json) const;
  [[nodiscard]] std::string status_document(bool with_descriptions) const;

  EventLoop& loop_;
  const NodeOptions& options_;
  Segment& segment_;
  const std::atomic<std::uint64_t>& populated_bytes_;
  ObjectTable table_;
  SharedCatalogue catalogue_;
  BlockIndex index_;
  HolderId self_;
  FrameServer server_;
  std::string serving_address_;
  std::vector<std::unique_ptr<Publisher>> publishers_;
  Grants grants_;
  std::set<ConnectionId> leaving_;  // gone, and a rail of theirs is still inside something
  RailServer rails_;                // after grants_: its threads end first
  bool populated_ = false;
  bool memory_refused_ = false;
  std::uint64_t started_ms_;
  std::array<std::uint64_t, 32> misses_{};    // by reason
  std::array<std::uint64_t, 32> refusals_{};  // by reason
  std::array<std::uint64_t, 32> requests_{};  // by verb
  std::uint64_t read_bytes_ = 0;
  std::uint64_t stored_bytes_ = 0;
  std::vector<Extent> freed_;
  std::vector<Event> events_;
  std::vector<Residency> residencies_;
};

}  // namespace moonpool
