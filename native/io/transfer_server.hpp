// The side of a transfer engine that peers reach: lets rails in and gives them to their threads.
#pragma once

#include "io/rail_server.hpp"
#include "io/server_shell.hpp"

namespace moonpool {

struct TransferServerOptions {
  ServerIdentity identity;
  ServerLimits limits;
  RailLimits rails;
};

class TransferService final : public Service {
 public:
  TransferService(EventLoop& loop, const TransferServerOptions& options, RailServer& rails);
  void start();  // listens; throws std::system_error
  void stop();
  [[nodiscard]] const std::vector<std::string>& bound() const { return server_.bound(); }
  [[nodiscard]] static std::string status(std::size_t /*byte_count_max*/) { return "{}"; }
  [[nodiscard]] CounterMap counters() const { return server_.counters(); }
  [[nodiscard]] static std::string check_integrity() { return {}; }

  void admit(Connection& connection) override;
  Welcome welcome(const Connection& connection) override;
  void admitted(Connection& connection) override;
  void take_rail(ProvenRail rail) override;
  void serve(Connection& connection, const Frame& frame) override;
  bool lost(Connection& connection) override;
  void gone(ConnectionId connection) override;

 private:
  EventLoop& loop_;
  RailServer& rails_;
  FrameServer server_;
};

class TransferServer : public ServerShell<TransferService> {
 public:
  TransferServer(TransferServerOptions options, RegionAuthority& authority, RailInbox* inbox);
  ~TransferServer();
  TransferServer(const TransferServer&) = delete;
  TransferServer& operator=(const TransferServer&) = delete;
  TransferServer(TransferServer&&) = delete;
  TransferServer& operator=(TransferServer&&) = delete;

  // Throws std::system_error (address taken), std::logic_error when it was started before.
  void start();
  // Nobody is inside any region afterwards.
  void stop();
  [[nodiscard]] std::vector<std::string> bound();
  [[nodiscard]] CounterMap rail_counters() const { return rails_.counters(); }
  [[nodiscard]] std::size_t rail_count() const { return rails_.rail_count(); }

 private:
  TransferServerOptions options_;
  RailServer rails_;
};

}  // namespace moonpool
