#include "absent_reads.h"

#include <dlfcn.h>
#include <signal.h>

#include <atomic>

#include "record_memory.h"
#include "spillway/phantoms/phantom_memory.h"

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

std::atomic<void (*)(const void*) noexcept> told{nullptr};
Others others_of[2];
thread_local bool is_handing_on = false;

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

void on_fault(int signal, siginfo_t* info, void* context) {
  if (phantoms::PhantomMemory::contains(info->si_addr) ||
      RecordMemory::around(info->si_addr) != nullptr)
    told.load()(info->si_addr);
  const Others& all = others(signal);
  if (!all.has_later || is_handing_on) {
    hand_on(all.before, signal, info, context);
    return;
  }
  is_handing_on = true;  // It calls or raises what it knows as the one before: us.
  hand_on(all.later, signal, info, context);
  is_handing_on = false;
}

/// Ours, or that of the mapper that works by signals, which stays in front of all.
bool is_of_core(const struct sigaction& action) {
  Dl_info of_handler{}, of_core{};
  return ::dladdr(reinterpret_cast<const void*>(action.sa_sigaction), &of_handler) != 0 &&
         ::dladdr(reinterpret_cast<const void*>(&on_fault), &of_core) != 0 &&
         of_handler.dli_fbase == of_core.dli_fbase;
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
