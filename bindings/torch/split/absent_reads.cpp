#include "absent_reads.h"

#include <signal.h>

#include <atomic>

#include "record_memory.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/preload/same_library.h"

namespace spillway::split {
namespace {

/// SIGBUS is that of a file that has become shorter.
constexpr int kFaults[] = {SIGSEGV, SIGBUS};

/// Who has a signal besides us. Written where no handler runs.
struct Others {
  struct sigaction before {};  ///< Who had it when we came.
  struct sigaction later {};   ///< Who has come since, and takes us for the one before.
  bool has_later = false;
};

/// A signal that a thread has handed on to the later one; none where that has returned.
struct HandedOn {
  const void* frame = nullptr;  ///< Of our handler.
  const void* context = nullptr;
};

std::atomic<void (*)(const void*) noexcept> told{nullptr};
Others others_of[2];
thread_local HandedOn handed_on;

Others& others(int signal) { return others_of[signal == SIGBUS ? 1 : 0]; }

void hand_on(const struct sigaction& next, int signal, siginfo_t* info, void* context) {
  if ((next.sa_flags & SA_SIGINFO) != 0) {
    next.sa_sigaction(signal, info, context);
  } else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
    next.sa_handler(signal);
  } else {
    ::sigaction(signal, &next, nullptr);  // It comes again when this returns.
  }
}

bool is_on_alternate_stack(const void* frame) {
  stack_t stack{};
  return ::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0 &&
         frame >= stack.ss_sp && frame < static_cast<const char*>(stack.ss_sp) + stack.ss_size;
}

/// Whether the later handler runs and takes us for the one before. Handlers may also leave by
/// longjmp, as probes of memory do, and the next fault finds what they have left here. An alternate
/// stack begins anew with it, and is deeper in use within a handler; on a stack of a thread, one
/// within a handler has been handed over with its context, or raised.
bool is_within_later(const HandedOn& here, const siginfo_t& info) {
  if (handed_on.frame == nullptr || here.frame >= handed_on.frame) return false;
  return here.context == handed_on.context || info.si_code <= 0 ||
         (is_on_alternate_stack(here.frame) && is_on_alternate_stack(handed_on.frame));
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (phantoms::PhantomMemory::contains(info->si_addr) ||
      RecordMemory::around(info->si_addr) != nullptr)
    told.load()(info->si_addr);
  const Others& all = others(signal);
  const HandedOn here{__builtin_frame_address(0), context};
  if (!all.has_later || is_within_later(here, *info)) {
    hand_on(all.before, signal, info, context);
    return;
  }
  handed_on = here;  // It calls or raises what it knows as the one before: us.
  hand_on(all.later, signal, info, context);
  handed_on = {};
}

/// Ours, or that of the mapper that works by signals, which stays in front of all.
bool is_of_core(const struct sigaction& action) {
  return preload::are_of_one_library(reinterpret_cast<const void*>(action.sa_sigaction),
                                     reinterpret_cast<const void*>(&on_fault));
}

void install(int signal) {
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_absent_reads(void (*tell)(const void* address) noexcept) {
  told.store(tell);
  for (const int signal : kFaults) {
    ::sigaction(signal, nullptr, &others(signal).before);
    install(signal);
  }
}

void keep_watching_absent_reads() {
  for (const int signal : kFaults) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (is_of_core(now)) continue;
    others(signal).later = now;
    others(signal).has_later = true;
    install(signal);
  }
}

}  // namespace spillway::split
