#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "spillway/base/signals_blocked.h"
#include "support/held_page.h"

namespace spillway {

/// For the child of a death test: does `access`, which is to wait for the held page, and sends this
/// process the signal meanwhile. Where that does not end it, it ends with another code.
[[noreturn]] inline void signal_while_waiting(memory::MapperKind mapper, int signal,
                                              const std::function<void(swap::HeldPage&)>& access) {
  constexpr int kLivesOn = 3;
  constexpr int kPatienceMilliseconds = 20'000;
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  swap::HeldPage page(mapper);
  std::thread sender;
  {
    const SignalsBlocked blocked;  // None but the waiting thread could take it.
    sender = std::thread([&page, signal] {
      page.await_access();
      ::kill(::getpid(), signal);
      ::poll(nullptr, 0, kPatienceMilliseconds);
      ::_exit(kLivesOn);
    });
  }
  access(page);
  ::_exit(kLivesOn);
}

}  // namespace spillway
