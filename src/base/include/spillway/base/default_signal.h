#pragma once

#include <pthread.h>
#include <signal.h>

namespace spillway {

/// Raises the signal with what the system does by default, even where it is handled or blocked:
/// ends the process if the signal is one that does. Safe in a signal handler.
inline void raise_default(int signal_number) noexcept {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal_number, &plain, nullptr);
  // On this thread: every other one may have the signal blocked, as this one may have until now.
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal_number);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal_number);
}

}  // namespace spillway
