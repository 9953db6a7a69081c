#pragma once

#include <signal.h>

namespace spillway {

/// Whether a signal waits, for the calling thread or for whichever of the process takes it, that is
/// not in `blocked`. Only what the caller blocks can wait. Safe in a signal handler, whose context
/// has a mask of the 64 signals that there are, and nothing behind them.
inline bool is_signal_waiting(const sigset_t& blocked) noexcept {
  sigset_t waiting;
  ::sigemptyset(&waiting);
  ::sigpending(&waiting);
  for (int signal = 1; signal < NSIG; ++signal)
    if (::sigismember(&waiting, signal) == 1 && ::sigismember(&blocked, signal) == 0) return true;
  return false;
}

}  // namespace spillway
