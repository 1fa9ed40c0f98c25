#include "core/messages.hpp"

namespace moonpool {
namespace {

template <class Message>
bool decodes(ConstBytes payload) {
  Reader reader(payload);
  return Message::decode(reader).has_value();
}

bool decode_request(MessageType type, ConstBytes payload) {
  switch (type) {
    case MessageType::hello: return decodes<Hello>(payload);
    case MessageType::authenticate: return decodes<Authenticate>(payload);
    case MessageType::reserve: return decodes<Reserve>(payload);
    case MessageType::commit: return decodes<Commit>(payload);
    case MessageType::abort: return decodes<Abort>(payload);
    case MessageType::put_inline: return decodes<PutInline>(payload);
    case MessageType::write: return decodes<Write>(payload);
    case MessageType::hold: return decodes<Hold>(payload);
    case MessageType::release:
    case MessageType::touched: return decodes<Release>(payload);
    case MessageType::read: return decodes<Read>(payload);
    case MessageType::exists:
    case MessageType::remove:
    case MessageType::pin:
    case MessageType::unpin:
    case MessageType::why:
    case MessageType::damaged: return decodes<Keys>(payload);
    case MessageType::clear: return decodes<Clear>(payload);
    case MessageType::list: return decodes<List>(payload);
    case MessageType::match: return decodes<Match>(payload);
    case MessageType::locate: return decodes<Locate>(payload);
    case MessageType::describe: return decodes<Describe>(payload);
    case MessageType::arena: return decodes<ArenaRequest>(payload);
    case MessageType::events: return decodes<Events>(payload);
    case MessageType::stat:
    case MessageType::ping:
    case MessageType::goodbye: return payload.empty();
    default: return false;
  }
}

bool decode_reply(MessageType request, ConstBytes payload) {
  switch (request) {
    case MessageType::hello: return decodes<Challenge>(payload);
    case MessageType::authenticate: return decodes<Welcome>(payload);
    case MessageType::reserve:
    case MessageType::commit:
    case MessageType::put_inline: return decodes<ReserveReply>(payload);
    case MessageType::abort:
    case MessageType::write:
    case MessageType::remove:
    case MessageType::pin:
    case MessageType::unpin:
    case MessageType::why:
    case MessageType::describe:
    case MessageType::damaged: return decodes<Outcomes>(payload);
    case MessageType::hold: return decodes<HoldReply>(payload);
    case MessageType::read: return decodes<ReadReply>(payload);
    case MessageType::exists: return decodes<ExistsReply>(payload);
    case MessageType::clear: return decodes<ClearReply>(payload);
    case MessageType::list: return decodes<ListReply>(payload);
    case MessageType::match: return decodes<MatchReply>(payload);
    case MessageType::locate: return decodes<LocateReply>(payload);
    case MessageType::stat: return decodes<StatReply>(payload);
    case MessageType::arena: return decodes<ArenaReply>(payload);
    case MessageType::events: return decodes<EventsReply>(payload);
    case MessageType::ping: return payload.empty();
    default: return false;
  }
}

}  // namespace

bool decode_message(std::uint16_t type, ConstBytes payload) {
  constexpr auto reply_bit = static_cast<std::uint16_t>(MessageType::reply_bit);
  if (type == static_cast<std::uint16_t>(MessageType::error)) return decodes<ErrorReply>(payload);
  if ((type & reply_bit) == 0) return decode_request(static_cast<MessageType>(type), payload);
  return decode_reply(static_cast<MessageType>(type ^ reply_bit), payload);
}

}  // namespace moonpool
