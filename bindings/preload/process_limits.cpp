// What a program that limits or locks its own memory means: what it takes itself, and not what the
// core has reserved for tensors. Without the core, and for all other limits, the calls go straight
// to the kernel.

#include <dlfcn.h>
#include <errno.h>
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

// The C library's own functions. Looked up when the library is loaded: in a forked child the
// loader's lock may be held for ever.
struct {
  decltype(&::execve) execve;
  decltype(&::execvpe) execvpe;
  decltype(&::fexecve) fexecve;
} known;

template <typename Function>
void look_up(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void look_up_all() {
  look_up("execve", known.execve);
  look_up("execvpe", known.execvpe);
  look_up("fexecve", known.fexecve);
}

/// The functions themselves, also for libraries whose constructors run before ours.
auto& real() {
  if (known.fexecve == nullptr) look_up_all();
  return known;
}

void hand_on_limits(int is_over) {
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks != nullptr && hooks->hand_on_limits != nullptr) hooks->hand_on_limits(is_over);
}

/// Another program has nothing reserved, and gets the limits that this one has set.
template <typename Call>
int with_own_limits(const Call& call) {
  hand_on_limits(0);
  const int result = call();
  hand_on_limits(1);
  return result;
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

SPILLWAY_VISIBLE int execve(const char* path, char* const* words, char* const* variables) noexcept {
  return with_own_limits([&] { return real().execve(path, words, variables); });
}

SPILLWAY_VISIBLE int execv(const char* path, char* const* words) noexcept {
  return with_own_limits([&] { return real().execve(path, words, environ); });
}

SPILLWAY_VISIBLE int execvpe(const char* file, char* const* words,
                             char* const* variables) noexcept {
  return with_own_limits([&] { return real().execvpe(file, words, variables); });
}

SPILLWAY_VISIBLE int execvp(const char* file, char* const* words) noexcept {
  return with_own_limits([&] { return real().execvpe(file, words, environ); });
}

SPILLWAY_VISIBLE int fexecve(int file, char* const* words, char* const* variables) noexcept {
  return with_own_limits([&] { return real().fexecve(file, words, variables); });
}

SPILLWAY_VISIBLE int mlockall(int flags) noexcept {
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks != nullptr && hooks->lock_all_memory != nullptr) return hooks->lock_all_memory(flags);
  return static_cast<int>(syscall(SYS_mlockall, flags));
}

}  // extern "C"
