// The functions that start a program, in the preload library and, for a trainer that is linked with
// it, in the core. A program that takes the place of this one gets the memory limits that this one
// has set; start_program says what else it gets.

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include "program_starts.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

// The C library's own. Found before main: a child of vfork, which may start a program, should not
// search, and in a forked child the loader's lock may be held for ever.
struct RealFunctions {
  int (*execve)(const char*, Words, Words) = nullptr;
  int (*execvpe)(const char*, Words, Words) = nullptr;
  int (*fexecve)(int, Words, Words) = nullptr;
  int (*execveat)(int, const char*, Words, Words, int) = nullptr;
  int (*posix_spawn)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                     const posix_spawnattr_t*, Words, Words) = nullptr;
  int (*posix_spawnp)(pid_t*, const char*, const posix_spawn_file_actions_t*,
                      const posix_spawnattr_t*, Words, Words) = nullptr;
};
RealFunctions real;

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void find_program_starters() {
  find(real.execvpe, "execvpe");
  find(real.fexecve, "fexecve");
  find(real.execveat, "execveat");
  find(real.posix_spawn, "posix_spawn");
  find(real.posix_spawnp, "posix_spawnp");
  find(real.execve, "execve");
}

// Also for libraries whose constructors run before ours.
const RealFunctions& real_functions() {
  if (real.execve == nullptr) find_program_starters();
  return real;
}

/// Starts a program in the place of this one. It has nothing reserved for tensors, and gets the
/// limits without what is reserved.
template <class Start>
int become(const Program& program, Words environment, const Start& start) {
  const auto with_own_limits = [&](Words mended) {
    const SpillwayHooks* hooks = registered_hooks();
    if (hooks == nullptr || hooks->hand_on_limits == nullptr) return start(mended);
    hooks->hand_on_limits(0);
    const int result = start(mended);
    hooks->hand_on_limits(1);
    return result;
  };
  return start_program(program, environment, Starter(with_own_limits));
}

int become_found(const char* name, Words words, Words environment) {
  return become({.name = name, .is_searched = true}, environment,
                [&](Words mended) { return real_functions().execvpe(name, words, mended); });
}

/// Starts a program beside this one.
template <class Start>
int spawn(Program program, Words environment, const Start& start) {
  program.replaces_this_one = false;
  return start_program(program, environment, Starter(start));
}

/// Words of a call that lists them one by one, up to and with a null.
size_t count_words(va_list list) {
  size_t count = 2;  // The first one and the null.
  while (va_arg(list, char*) != nullptr) ++count;
  return count;
}

/// Leaves the list behind their null.
void take_words(const char* first, va_list* list, char** words) {
  *words = const_cast<char*>(first);
  while (*words != nullptr) *++words = va_arg(*list, char*);
}

}  // namespace

}  // namespace spillway::preload

using spillway::preload::become;
using spillway::preload::become_found;
using spillway::preload::count_words;
using spillway::preload::real_functions;
using spillway::preload::spawn;
using spillway::preload::take_words;
using spillway::preload::Words;

// The words behind `first`, in `words`; `list` is left at what follows them.
#define SPILLWAY_TAKE_WORDS(words, first, list)                                       \
  va_list list;                                                                       \
  va_start(list, first);                                                              \
  const size_t count_of_##words = count_words(list);                                  \
  va_end(list);                                                                       \
  auto** const words = static_cast<char**>(alloca(count_of_##words * sizeof(char*))); \
  va_start(list, first);                                                              \
  take_words(first, &list, words)

extern "C" {

SPILLWAY_VISIBLE int execve(const char* path, Words words, Words environment) noexcept {
  return become({.name = path}, environment,
                [&](Words mended) { return real_functions().execve(path, words, mended); });
}

SPILLWAY_VISIBLE int execv(const char* path, Words words) noexcept {
  return execve(path, words, environ);
}

SPILLWAY_VISIBLE int execvpe(const char* name, Words words, Words environment) noexcept {
  return become_found(name, words, environment);
}

SPILLWAY_VISIBLE int execvp(const char* name, Words words) noexcept {
  return become_found(name, words, environ);
}

SPILLWAY_VISIBLE int execl(const char* path, const char* first, ...) noexcept {
  SPILLWAY_TAKE_WORDS(words, first, list);
  va_end(list);
  return execve(path, words, environ);
}

SPILLWAY_VISIBLE int execlp(const char* name, const char* first, ...) noexcept {
  SPILLWAY_TAKE_WORDS(words, first, list);
  va_end(list);
  return become_found(name, words, environ);
}

SPILLWAY_VISIBLE int execle(const char* path, const char* first, ...) noexcept {
  SPILLWAY_TAKE_WORDS(words, first, list);
  auto* const environment = va_arg(list, Words);
  va_end(list);
  return execve(path, words, environment);
}

SPILLWAY_VISIBLE int fexecve(int file, Words words, Words environment) noexcept {
  return become({}, environment,
                [&](Words mended) { return real_functions().fexecve(file, words, mended); });
}

SPILLWAY_VISIBLE int execveat(int folder, const char* path, Words words, Words environment,
                              int flags) noexcept {
  return become({}, environment, [&](Words mended) {
    if (real_functions().execveat != nullptr)
      return real_functions().execveat(folder, path, words, mended, flags);
    errno = ENOSYS;
    return -1;
  });
}

SPILLWAY_VISIBLE int posix_spawn(pid_t* child, const char* path,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, Words words,
                                 Words environment) {
  return spawn({.name = path}, environment, [&](Words mended) {
    return real_functions().posix_spawn(child, path, actions, attributes, words, mended);
  });
}

SPILLWAY_VISIBLE int posix_spawnp(pid_t* child, const char* name,
                                  const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, Words words,
                                  Words environment) {
  return spawn({.name = name, .is_searched = true}, environment, [&](Words mended) {
    return real_functions().posix_spawnp(child, name, actions, attributes, words, mended);
  });
}

}  // extern "C"
