// The functions that start a program, for a trainer that is linked with the core: such a program
// gets the memory limits that the trainer has set. Under the command program_starts.cpp does this.

#include <dlfcn.h>
#include <unistd.h>

#include "own_limits_at_start.h"

namespace spillway::preload {
namespace {

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

}  // namespace
}  // namespace spillway::preload

extern "C" {

using namespace spillway::preload;

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

}  // extern "C"
