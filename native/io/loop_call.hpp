// Asking something of a loop's thread from another thread.
#pragma once

#include <future>

#include "io/event_loop.hpp"

namespace moonpool {

// Runs the function in the loop's thread and returns what it returns. The loop must be running, or run again
// once after stop(): a posted task is never forgotten.
template <class Function>
auto call_in_loop(EventLoop& loop, Function function) {
  std::packaged_task<decltype(function())()> task(std::move(function));
  auto result = task.get_future();
  auto shared = std::make_shared<decltype(task)>(std::move(task));
  loop.post([shared] { (*shared)(); });
  return result.get();
}

}  // namespace moonpool
