#include "spillway/memory/hand_on_signal.h"

#include <ucontext.h>

namespace spillway::memory {
namespace {

bool has_function(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void call(const struct sigaction& action, int signal_number, siginfo_t* info, void* context) {
  sigset_t mask = static_cast<ucontext_t*>(context)->uc_sigmask;
  sigset_t ours;
  sigorset(&mask, &mask, &action.sa_mask);
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, signal_number);
  pthread_sigmask(SIG_SETMASK, &mask, &ours);
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal_number, info, context);
  } else {
    action.sa_handler(signal_number);
  }
  pthread_sigmask(SIG_SETMASK, &ours, nullptr);
}

}  // namespace

void hand_on_signal(const struct sigaction& previous, int signal_number, siginfo_t* info,
                    void* context) {
  const bool was_sent = info->si_code <= 0;
  if (has_function(previous)) return call(previous, signal_number, info, context);
  if (was_sent && previous.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal_number, &action, nullptr);
  // A real fault repeats on return. A signal that somebody sent does not, and must be sent again.
  if (was_sent) raise(signal_number);
}

}  // namespace spillway::memory
