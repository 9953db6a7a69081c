// What a program that is started under `spillway run` gets: what the command has set reaches it,
// also where its starter clears the environment. And the first process of a run says so when it
// becomes a program that nothing can be loaded into.

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kept_environment.h"
#include "messages.h"
#include "program_starts.h"
#include "run_listener.h"
#include "spillway/preload/secure_start.h"

namespace spillway::preload {
namespace {

// The name itself where there is no such file.
void find_file(const Program& program, char (&path)[PATH_MAX]) {
  snprintf(path, sizeof path, "%s", program.name);
  const bool is_searched = program.is_searched && strchr(program.name, '/') == nullptr;
  const char* folder = is_searched ? getenv("PATH") : nullptr;
  while (folder != nullptr) {
    const size_t length = strcspn(folder, ":");
    snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(length), length == 0 ? "." : folder,
             program.name);
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
void warn_of_unreachable(const Program& program, Words environment) {
  if (program.name == nullptr) return;
  char path[PATH_MAX];
  find_file(program, path);
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

}  // namespace

int start_program(const Program& program, Words environment, const Starter& start) {
  // A child of the first process leaves that one there: nothing is to be said.
  const RunState run = program.replaces_this_one ? state_of_run() : RunState::kNotListening;
  return with_mended(environment, run == RunState::kUnderSpillway, [&](Words mended) {
    if (run == RunState::kPlain) warn_of_unreachable(program, mended);
    return start(mended);
  });
}

}  // namespace spillway::preload
