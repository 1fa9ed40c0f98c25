// Messages that open, describe and end a connection.
#pragma once

#include <array>

#include "core/frame.hpp"
#include "core/types.hpp"

namespace moonpool {

using Nonce = std::array<std::byte, 16>;
inline constexpr std::uint64_t hello_magic = 0x314c4f4f504e4d4dULL;
inline constexpr std::size_t label_bytes_max = 255;            // tenant, name, site
inline constexpr std::size_t address_bytes_max = 1024;
inline constexpr std::size_t error_text_bytes_max = 1024;
inline constexpr std::size_t document_bytes_max = 64U << 10;   // of `describe`

// A rail leaves the message protocol after its welcome and carries slices (see core/rail_frame.hpp).
enum class Role : std::uint8_t { client = 0, owner = 1, rail = 2 };

// The layouts of Hello and ErrorReply never change, and both travel in frames of version 1, so that any two
// releases can tell each other which versions they speak.
struct Hello {
  std::uint64_t magic = hello_magic;
  std::uint8_t version_min = wire_version_min, version_max = wire_version_max;
  Role role = Role::client;
  std::uint32_t process_id = 0;
  std::uint64_t incarnation = 0;  // owners: theirs; rails: random, the same for all rails of one client
  Nonce nonce{};
  std::string_view tenant{}, name{}, site{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Hello> decode(Reader& from);
};

struct Challenge {
  std::uint8_t version = wire_version_max;
  std::uint64_t incarnation = 0;
  Nonce nonce{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Challenge> decode(Reader& from);
};

// proof = SipHash-128 with the cluster key over "client" | server nonce | client nonce | tenant | name, each of the
// last two with its length before it.
// Welcome carries the server's own proof ("server" | client nonce | server nonce): the client checks it.
struct Authenticate {
  Digest proof{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Authenticate> decode(Reader& from);
};

struct Welcome {
  Digest proof{};
  std::uint64_t incarnation = 0, tenant_id = 0;
  ConnectionId connection = 0;
  bool shared_memory = false;  // false: another uid or an isolated tenant; values go through the socket
  bool warming = false;        // segment not populated yet, or directory still being told
  std::uint32_t small_put_bytes_max = 0;
  std::string_view node_name{}, site{};
  std::string_view address{};  // at which others can reach it
  std::vector<std::uint64_t> arena_bytes{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Welcome> decode(Reader& from);
};

// JSON; reply: Outcomes of one.
struct Describe {
  std::string_view document{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<Describe> decode(Reader& from);
};

// The JSON document of /status; the request's payload is empty.
struct StatReply {
  ConstBytes document{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<StatReply> decode(Reader& from);
};

struct ErrorReply {
  Reason reason = Reason::protocol;
  std::uint8_t version_min = wire_version_min, version_max = wire_version_max;
  std::string_view message{};
  void encode(Writer& into) const;
  [[nodiscard]] static std::optional<ErrorReply> decode(Reader& from);
};

}  // namespace moonpool
