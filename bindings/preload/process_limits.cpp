// What a program that limits or locks its own memory means: what it takes itself, and not what the
// core has reserved for tensors. Without the core, and for all other limits, the calls go straight
// to the kernel.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "registered_hooks.h"

namespace spillway::preload {
namespace {

// The layouts of the two kinds of functions are one.
static_assert(sizeof(rlimit) == sizeof(rlimit64));

int change_limit(int resource, const void* wanted, void* told) {
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks != nullptr && hooks->change_limit != nullptr)
    return hooks->change_limit(resource, static_cast<const rlimit*>(wanted),
                               static_cast<rlimit*>(told));
  return static_cast<int>(syscall(SYS_prlimit64, 0, resource, wanted, told));
}

int change_limit_of(pid_t process, int resource, const void* wanted, void* told) {
  if (process == 0 || process == getpid()) return change_limit(resource, wanted, told);
  return static_cast<int>(syscall(SYS_prlimit64, process, resource, wanted, told));
}

}  // namespace
}  // namespace spillway::preload

extern "C" {

using namespace spillway::preload;

SPILLWAY_VISIBLE int setrlimit(__rlimit_resource_t resource, const rlimit* wanted) noexcept {
  return change_limit(resource, wanted, nullptr);
}

SPILLWAY_VISIBLE int setrlimit64(__rlimit_resource_t resource, const rlimit64* wanted) noexcept {
  return change_limit(resource, wanted, nullptr);
}

SPILLWAY_VISIBLE int getrlimit(__rlimit_resource_t resource, rlimit* told) noexcept {
  return change_limit(resource, nullptr, told);
}

SPILLWAY_VISIBLE int getrlimit64(__rlimit_resource_t resource, rlimit64* told) noexcept {
  return change_limit(resource, nullptr, told);
}

SPILLWAY_VISIBLE int prlimit(pid_t process, __rlimit_resource resource, const rlimit* wanted,
                             rlimit* told) noexcept {
  return change_limit_of(process, resource, wanted, told);
}

SPILLWAY_VISIBLE int prlimit64(pid_t process, __rlimit_resource resource, const rlimit64* wanted,
                               rlimit64* told) noexcept {
  return change_limit_of(process, resource, wanted, told);
}

SPILLWAY_VISIBLE int mlockall(int flags) noexcept {
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks != nullptr && hooks->lock_all_memory != nullptr) return hooks->lock_all_memory(flags);
  return static_cast<int>(syscall(SYS_mlockall, flags));
}

}  // extern "C"
