// The functions that start a program: what `spillway run` has set reaches it, also where its
// starter clears the environment. And the first process of a run says so when it becomes a program
// that nothing can be loaded into.

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kept_environment.h"
#include "messages.h"
#include "own_limits_at_start.h"
#include "program_starts.h"
#include "registered_hooks.h"
#include "run_listener.h"
#include "spillway/preload/secure_start.h"

namespace spillway::preload {
namespace {

using Words = char* const*;

// The C library's own. Found before main: a child of vfork, which may start a program, should not
// search.
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

const RealFunctions& real_functions() {
  if (real.execve == nullptr) find_program_starters();
  return real;
}

// The file that a name without a slash stands for; the name itself when there is none.
void search(const char* name, char (&path)[PATH_MAX]) {
  snprintf(path, sizeof path, "%s", name);
  const char* folder = strchr(name, '/') != nullptr ? nullptr : getenv("PATH");
  while (folder != nullptr) {
    const size_t length = strcspn(folder, ":");
    snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), length == 0 ? "." : folder,
             name);
    if (access(path, X_OK) == 0) return;
    folder = folder[length] == ':' ? folder + length + 1 : nullptr;
  }
}

bool is_static(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  alignas(Elf64_Ehdr) char start[4096];
  const ssize_t size = read(file, start, sizeof start);
  close(file);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(start);
  if (size < static_cast<ssize_t>(sizeof *header) || memcmp(start, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const size_t at = header->e_phoff + i * sizeof(Elf64_Phdr);
    if (at + sizeof(Elf64_Phdr) > static_cast<size_t>(size)) return false;
    Elf64_Phdr segment;
    memcpy(&segment, start + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return false;
  }
  return true;
}

bool has_our_library(Words environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment)
    if (strncmp(*environment, "LD_PRELOAD=", 11) == 0)
      return strstr(*environment, "libspillway_preload.so") != nullptr;
  return false;
}

// Its last chance: what the first process becomes has nothing of ours in it to say so at the end.
void warn_of_unreachable(const char* path, Words environment) {
  const char* reason = nullptr;
  switch (secure_start_of(path)) {
    case SecureStart::kNo: break;
    case SecureStart::kOfOtherUser: reason = "it changes its user or group (set-user-id)"; break;
    case SecureStart::kWithCapabilities: reason = "it has file capabilities (setcap)"; break;
  }
  if (reason == nullptr && is_static(path)) reason = "it is statically linked";
  if (reason == nullptr && access(path, X_OK) == 0 && !has_our_library(environment))
    reason = "LD_PRELOAD was taken out of its environment";
  if (reason != nullptr)
    warn("%s is not under Spillway, so the budget limits nothing in it: %s", path, reason);
}

/// Calls `start` with the environment for a program that this process becomes.
template <class Start>
int become(const char* path, Words environment, const Start& start) {
  const RunState run = state_of_run();
  return with_mended(environment, run == RunState::kUnderSpillway, [&](Words mended) {
    if (run == RunState::kPlain && path != nullptr) warn_of_unreachable(path, mended);
    return with_own_limits([&] { return start(mended); });
  });
}

int become_found(const char* name, Words words, Words environment) {
  char path[PATH_MAX];
  if (state_of_run() == RunState::kPlain)
    search(name, path);
  else
    snprintf(path, sizeof path, "%s", name);
  return become(path, environment,
                [&](Words mended) { return real_functions().execvpe(name, words, mended); });
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

void find_program_starters() {
  find(real.execvpe, "execvpe");
  find(real.fexecve, "fexecve");
  find(real.execveat, "execveat");
  find(real.posix_spawn, "posix_spawn");
  find(real.posix_spawnp, "posix_spawnp");
  find(real.execve, "execve");
}

}  // namespace spillway::preload

using spillway::preload::become;
using spillway::preload::become_found;
using spillway::preload::count_words;
using spillway::preload::real_functions;
using spillway::preload::take_words;
using spillway::preload::with_mended;
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
  return become(path, environment,
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
  return become(nullptr, environment,
                [&](Words mended) { return real_functions().fexecve(file, words, mended); });
}

SPILLWAY_VISIBLE int execveat(int folder, const char* path, Words words, Words environment,
                              int flags) noexcept {
  return become(nullptr, environment, [&](Words mended) {
    if (real_functions().execveat != nullptr)
      return real_functions().execveat(folder, path, words, mended, flags);
    errno = ENOSYS;
    return -1;
  });
}

// A child of the first process leaves that one there: nothing is to be said.
SPILLWAY_VISIBLE int posix_spawn(pid_t* child, const char* path,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, Words words,
                                 Words environment) {
  return with_mended(environment, false, [&](Words mended) {
    return real_functions().posix_spawn(child, path, actions, attributes, words, mended);
  });
}

SPILLWAY_VISIBLE int posix_spawnp(pid_t* child, const char* name,
                                  const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, Words words,
                                  Words environment) {
  return with_mended(environment, false, [&](Words mended) {
    return real_functions().posix_spawnp(child, name, actions, attributes, words, mended);
  });
}

}  // extern "C"
