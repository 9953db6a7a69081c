#include "absent_reads.h"

#include <signal.h>

#include <atomic>

#include "spillway/phantoms/phantom_memory.h"

namespace spillway::split {
namespace {

std::atomic<void (*)(const void*) noexcept> told{nullptr};
struct sigaction before;

void on_fault(int signal, siginfo_t* info, void* context) {
  if (phantoms::PhantomMemory::contains(info->si_addr)) told.load()(info->si_addr);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    ::sigaction(signal, &before, nullptr);  // It comes again when this returns.
  }
}

}  // namespace

void watch_absent_reads(void (*tell)(const void* address) noexcept) {
  told.store(tell);
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigaction(SIGSEGV, nullptr, &before);
  ::sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace spillway::split
