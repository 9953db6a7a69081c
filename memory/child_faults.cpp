#include "child_faults.h"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cerrno>

#include "spillway/base/assert.h"
#include "spillway/base/waiting_signal.h"
#include "spillway/memory/hand_on_signal.h"

namespace spillway::memory {
namespace {

/// Set in a forked child only, for its signal handler.
struct ChildOfFork {
  std::array<InheritedRegion, 16> regions;
  std::size_t count = 0;
  struct sigaction previous_of_segv {};
  struct sigaction previous_of_bus {};
};
ChildOfFork child;

const InheritedRegion* region_of(const std::byte* address) {
  for (std::size_t i = 0; i < child.count; ++i) {
    const InheritedRegion& region = child.regions[i];
    if (address >= region.begin && address < region.begin + region.size) return &region;
  }
  return nullptr;
}

void handle_in_child(int number, siginfo_t* info, void* context) {
  const int error = errno;
  auto* const address = static_cast<std::byte*>(info->si_addr);
  const InheritedRegion* const region = region_of(address);
  if (info->si_code <= 0 || region == nullptr) {
    hand_on_signal(number == SIGSEGV ? child.previous_of_segv : child.previous_of_bus, number, info,
                   context);
  } else if (number == SIGBUS) {
    region->cannot_read();
  } else {
    const sigset_t& blocked = static_cast<const ucontext_t*>(context)->uc_sigmask;
    region->sink->serve_access(page_at(address, region->begin), Access::kRead,
                               [&blocked] { return is_signal_waiting(blocked); });
  }
  errno = error;
}

void install_handler(int number, struct sigaction& previous) {
  struct sigaction action {};
  action.sa_sigaction = handle_in_child;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  ::sigaction(number, &action, &previous);
}

}  // namespace

void report_in_child(const InheritedRegion& region) {
  SPILLWAY_ASSERT(child.count < child.regions.size());
  child.regions[child.count] = region;
  if (child.count++ > 0) return;
  install_handler(SIGSEGV, child.previous_of_segv);
  install_handler(SIGBUS, child.previous_of_bus);
}

}  // namespace spillway::memory
