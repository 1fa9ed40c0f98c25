// What a directory does with its connections' messages: soft state, built only from what owners tell it.
#pragma once

#include "core/block_index.hpp"
#include "io/frame_server.hpp"
#include "io/json.hpp"

namespace moonpool {

struct DirectoryOptions {
  ServerIdentity identity;
  std::uint64_t entry_count_max = 0;
  ServerLimits limits;
};

class DirectoryService final : public Service {
 public:
  DirectoryService(EventLoop& loop, const DirectoryOptions& options);
  ~DirectoryService() override;

  void start();  // listens; throws std::system_error
  void stop();
  [[nodiscard]] std::string status(std::size_t byte_count_max) const;
  [[nodiscard]] CounterMap counters() const;
  [[nodiscard]] std::string check_integrity() const { return index_.check_integrity(); }

  void admit(Connection& connection) override;
  Welcome welcome(const Connection& connection) override;
  void admitted(Connection& connection) override;
  void serve(Connection& connection, const Frame& frame) override;
  bool lost(Connection& connection) override;
  void gone(ConnectionId connection) override;

 private:
  // One connection of one incarnation of an owner.
  struct Holder {
    HolderId id = 0;
    std::string name, site, address;
    std::uint64_t incarnation = 0;
    std::uint64_t next_sequence = 0;
    std::uint64_t last_heard_ms = 0;
    bool told = false;  // its snapshot is complete
  };
  void events(Connection& connection, const Frame& frame);
  void apply(Holder& holder, const Events& message);
  void match(Connection& connection, const Frame& frame);
  void locate(Connection& connection, const Frame& frame);
  void describe(Connection& connection, const Frame& frame);
  void stat(Connection& connection, const Frame& frame);
  [[nodiscard]] bool warming() const;
  [[nodiscard]] HolderInfo info_of(HolderId id) const;
  void write_holders(JsonWriter& json) const;
  void write_connections(JsonWriter& json, bool with_descriptions) const;
  [[nodiscard]] std::string status_document(bool with_descriptions) const;

  EventLoop& loop_;
  const DirectoryOptions& options_;
  BlockIndex index_;
  FrameServer server_;
  std::unordered_map<ConnectionId, Holder> holders_;
  std::unordered_map<HolderId, ConnectionId> connection_of_;
  bool ever_told_ = false;
  std::uint64_t started_ms_;
  std::uint64_t event_count_ = 0;
  std::uint64_t match_count_ = 0;
  std::uint64_t locate_count_ = 0;
};

}  // namespace moonpool
