// Threads of ours inside somebody else's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace moonpool {

// A thread that takes no signals: they belong to the program's own threads (Python's main thread waits for them).
template <class Function>
[[nodiscard]] std::thread quiet_thread(Function function) {
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace moonpool
