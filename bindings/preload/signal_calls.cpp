// The functions that set what a signal does. In a program that is to be split over ranks its own
// handlers stand behind one of ours, which asks the core whether they are to wait; what the program
// asks and gets is as before.

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "next_function.h"
#include "registered_hooks.h"
#include "spillway/preload/same_library.h"

namespace spillway::preload {
namespace {

using Action = struct sigaction;

decltype(&::sigaction) known_sigaction;
decltype(&::signal) known_signal;

// Of the signals that stand behind ours. Written before the kernel knows, read in handlers.
constexpr int kSignalsMax = 65;
Action set_by_program[kSignalsMax];

/// What launchers, batch systems and people send to tell a program something.
bool is_sent_to_ranks(int signal) {
  for (const int sent : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU})
    if (signal == sent) return true;
  return false;
}

bool is_to_be_split() {
  static int known = -1;
  if (known < 0) {
    const char* split = getenv("SPILLWAY_SPLIT");
    known = split != nullptr && strcmp(split, "on") == 0 ? 1 : 0;
  }
  return known == 1;
}

bool is_of_core(const Action& action) {
  const SpillwayHooks* told = registered_hooks();
  return told != nullptr && are_of_one_library(reinterpret_cast<const void*>(action.sa_handler),
                                               reinterpret_cast<const void*>(told->thread_started));
}

bool is_handler(const Action& action) {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

int set_action(int signal, const Action* wanted, Action* told) {
  return next_function(known_sigaction, "sigaction")(signal, wanted, told);
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  const SpillwayHooks* told = registered_hooks();
  const Action action = set_by_program[signal];
  if (told == nullptr || told->hold_signal == nullptr || told->hold_signal(signal) == 0) {
    if ((static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0) {
      Action none{};
      none.sa_handler = SIG_DFL;
      set_action(signal, &none, nullptr);
    }
    errno = before;
    if ((action.sa_flags & SA_SIGINFO) != 0)
      action.sa_sigaction(signal, info, context);
    else
      action.sa_handler(signal);
    return;
  }
  errno = before;
}

int set_behind_ours(int signal, const Action* wanted, Action* told) {
  const Action before = set_by_program[signal];
  Action given{};
  if (wanted != nullptr) given = *wanted;
  if (wanted != nullptr && is_handler(*wanted) && !is_of_core(*wanted)) {
    set_by_program[signal] = *wanted;
    given.sa_sigaction = &on_signal;
    given.sa_flags = static_cast<int>((static_cast<unsigned>(given.sa_flags) | SA_SIGINFO) &
                                      ~static_cast<unsigned>(SA_RESETHAND));
  }
  Action was{};
  const int result = set_action(signal, wanted == nullptr ? nullptr : &given, &was);
  if (result != 0) set_by_program[signal] = before;
  if (result == 0 && told != nullptr) *told = was.sa_sigaction == &on_signal ? before : was;
  return result;
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE int sigaction(int signal, const struct sigaction* wanted,
                               struct sigaction* told) noexcept {
  if (!is_sent_to_ranks(signal) || !is_to_be_split()) return set_action(signal, wanted, told);
  return set_behind_ours(signal, wanted, told);
}

SPILLWAY_VISIBLE sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (!is_sent_to_ranks(number) || !is_to_be_split())
    return next_function(known_signal, "signal")(number, handler);
  Action wanted{};
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART;
  sigaddset(&wanted.sa_mask, number);
  Action told{};
  return set_behind_ours(number, &wanted, &told) == 0 ? told.sa_handler : SIG_ERR;
}

}  // extern "C"
