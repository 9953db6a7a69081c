#pragma once

#include <pthread.h>
#include <signal.h>

namespace spillway {

/// Blocks all signals on the calling thread while it lives. Threads that start meanwhile keep them
/// blocked: a handler of the trainer never runs on one of ours, where a tensor that it touches
/// might wait for the very thread that it interrupts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace spillway
