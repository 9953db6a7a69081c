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
#include "private_files.h"
#include "program_starts.h"
#include "rank_notices.h"
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

/// A program's file, as far as it tells what can be loaded into it.
class ProgramFile {
 public:
  explicit ProgramFile(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {
    if (!fill(&header_, sizeof header_, 0) || memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
        header_.e_ident[EI_CLASS] != ELFCLASS64)
      header_ = {};
  }
  ~ProgramFile() {
    if (file_ >= 0) close(file_);
  }
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;

  bool is_static() const {
    for (unsigned i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (!fill(&segment, sizeof segment, header_.e_phoff + i * sizeof segment) ||
          segment.p_type == PT_INTERP)
        return false;
    }
    return header_.e_phnum > 0;
  }

  bool is_made_by_go() const {
    Elf64_Shdr names;
    char text[4096];
    if (header_.e_shnum == 0 ||
        !fill(&names, sizeof names, header_.e_shoff + header_.e_shstrndx * sizeof names))
      return false;
    const size_t size = names.sh_size < sizeof text ? names.sh_size : sizeof text;
    return fill(text, size, names.sh_offset) &&
           memmem(text, size, kGoSection, sizeof kGoSection) != nullptr;
  }

 private:
  static constexpr char kGoSection[] = ".go.buildinfo";

  bool fill(void* to, size_t size, size_t from) const {
    return pread(file_, to, size, static_cast<off_t>(from)) == static_cast<ssize_t>(size);
  }

  int file_;
  Elf64_Ehdr header_{};
};

bool has_our_library(Words environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment)
    if (strncmp(*environment, "LD_PRELOAD=", 11) == 0)
      return strstr(*environment, "libspillway_preload.so") != nullptr;
  return false;
}

// Null where our library comes into it, if LD_PRELOAD names that.
const char* why_unreachable(const char* path) {
  switch (secure_start_of(path)) {
    case SecureStart::kNo: break;
    case SecureStart::kOfOtherUser: return "it changes its user or group (set-user-id)";
    case SecureStart::kWithCapabilities: return "it has file capabilities (setcap)";
  }
  return ProgramFile(path).is_static() ? "it is statically linked" : nullptr;
}

// Its last chance: what the first process becomes has nothing of ours in it to say so at the end.
void warn_of_unreachable(const Program& program, Words environment) {
  if (program.name == nullptr) return;
  char path[PATH_MAX];
  find_file(program, path);
  const char* reason = why_unreachable(path);
  if (reason == nullptr && access(path, X_OK) == 0 && !has_our_library(environment))
    reason = "LD_PRELOAD was taken out of its environment";
  if (reason != nullptr)
    warn("%s is not under Spillway, so the budget limits nothing in it: %s", path, reason);
}

// What writes the user's files on each rank.
void warn_of_other_files(const Program& program) {
  if (program.name == nullptr) return;
  char path[PATH_MAX];
  find_file(program, path);
  const char* reason = why_unreachable(path);
  if (reason == nullptr && ProgramFile(path).is_made_by_go())
    reason = "it is made by Go, whose programs make their system calls themselves";
  // Python's ctypes asks it for libraries, and it writes nothing then.
  const char* name = strrchr(path, '/');
  if (reason != nullptr && (name == nullptr || strcmp(name, "/ldconfig") != 0))
    tell_of_unreachable(path, reason);
}

}  // namespace

int start_program(const Program& program, Words environment, const Starter& start) {
  if (has_private_files()) warn_of_other_files(program);
  // A child of the first process leaves that one there: nothing is to be said.
  const RunState run = program.replaces_this_one ? state_of_run() : RunState::kNotListening;
  return with_mended(environment, run == RunState::kUnderSpillway, [&](Words mended) {
    if (run == RunState::kPlain) warn_of_unreachable(program, mended);
    return start(mended);
  });
}

}  // namespace spillway::preload
