#include "faults.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "address_space.h"
#include "pinned_memory.h"
#include "settings.h"
#include "stream.h"

namespace spillway::emulated {
namespace {

struct sigaction previous;

// The thread of a fault holds none of our mutexes: it was in code of the program, or in a copy,
// when it met the page.
bool explain_or_mend(const void* address) {
  char text[512];
  int length = 0;
  if (AddressSpace::of_process().is_device(address)) {
    const char* what = running();
    length = std::snprintf(
        text, sizeof text,
        "emulated CUDA: '%s' touches device memory at %p, which is freed, unmapped or "
        "not allocated\n",
        what == nullptr ? "a thread of the host" : what, address);
  } else if (settings().check) {
    if (in_worker() && PinnedMemory::of_process().open_page(address)) return true;
    const auto use = PinnedMemory::of_process().find(address);
    if (!use) return false;
    const bool reads = use->kind == Use::kRead;
    length = std::snprintf(
        text, sizeof text,
        "emulated CUDA: the host touches pinned memory at %p that '%s' %s and that the "
        "host has not yet waited for; %s it after cudaEventSynchronize on an event behind that "
        "work\n",
        address, use->what.c_str(), reads ? "reads" : "writes", reads ? "write" : "use");
  } else {
    return false;
  }
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  return false;
}

// What is not ours goes to the handler that was there before; without one, the access faults again
// and ends the process.
void on_fault(int signal, siginfo_t* what, void* context) {
  if (explain_or_mend(what->si_addr)) return;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, what, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    sigaction(SIGSEGV, &previous, nullptr);
  }
}

}  // namespace

void handle_faults() {
  struct sigaction mine;
  std::memset(&mine, 0, sizeof mine);
  mine.sa_sigaction = on_fault;
  mine.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &mine, &previous);
}

}  // namespace spillway::emulated
