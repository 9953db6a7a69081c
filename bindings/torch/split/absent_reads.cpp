#include "absent_reads.h"

#include <signal.h>

#include <atomic>

#include "record_memory.h"
#include "spillway/phantoms/phantom_memory.h"

namespace spillway::split {
namespace {

std::atomic<void (*)(const void*) noexcept> told{nullptr};
struct sigaction before, before_of_files;

void on_fault(int signal, siginfo_t* info, void* context) {
  if (phantoms::PhantomMemory::contains(info->si_addr) ||
      RecordMemory::around(info->si_addr) != nullptr)
    told.load()(info->si_addr);
  const struct sigaction& next = signal == SIGBUS ? before_of_files : before;
  if ((next.sa_flags & SA_SIGINFO) != 0) {
    next.sa_sigaction(signal, info, context);
  } else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
    next.sa_handler(signal);
  } else {
    ::sigaction(signal, &next, nullptr);  // It comes again when this returns.
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
  // Of a file that has become shorter.
  ::sigaction(SIGBUS, nullptr, &before_of_files);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace spillway::split
