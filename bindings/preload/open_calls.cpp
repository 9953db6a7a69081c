// The functions that open a file or make a temporary one. Where the files of the process are its
// own (private_files.h), they open those; else they are as before.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "file_calls.h"
#include "next_function.h"
#include "private_folder.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

constexpr int kAttempts = 1000;  // To find a name that is free.

decltype(&::openat) known_openat;
decltype(&::fopen) known_fopen;
decltype(&::freopen) known_freopen;
decltype(&::mkostemps) known_mkostemps;
decltype(&::mkdtemp) known_mkdtemp;

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int flags_of(const char* mode) {
  int flags = mode[0] == 'r' ? 0 : O_CREAT;
  if (mode[0] == 'w') flags |= O_TRUNC;
  bool reads_and_writes = false;
  for (const char* at = mode; *at != '\0' && *at != ','; ++at) {
    reads_and_writes = reads_and_writes || *at == '+';
    if (*at == 'x') flags |= O_EXCL;
  }
  if (reads_and_writes) return flags | O_RDWR;
  return flags | (mode[0] == 'r' ? O_RDONLY : O_WRONLY);
}

/// Finds what is to be opened with these flags and readies it.
int place_to_open(int folder, const char* path, int flags, Place& place) {
  const bool is_new = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
  const int error =
      find_place(folder, path, follow_unless(is_new || (flags & O_NOFOLLOW) != 0), place);
  if (error != 0 || place.kind == Kind::kOutside) return error;
  if ((flags & O_TMPFILE) != O_TMPFILE) {
    if ((flags & O_ACCMODE) != O_WRONLY && (flags & O_TRUNC) == 0 && is_changed_meanwhile(place))
      tell_of_change(place.name);
    return ready_to_open(place, flags);
  }
  // A file without a name may get one later, so it lies where that will.
  const int refused = place.exists() ? raw::access_to(place.file, W_OK | X_OK) : ENOENT;
  return refused != 0 ? refused : folder_of_new(place.file);
}

/// A file that a call is about to empty while tensors are still to be read from it: what has it
/// open keeps it, without a name, and the call makes a new one, with the mode of the old one.
class Emptied {
 public:
  Emptied(int folder, const char* path, int flags) {
    const SpillwayHooks* hooks = registered_hooks();
    if ((flags & O_TRUNC) == 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_EXCL) != 0 ||
        hooks == nullptr || hooks->keeps_file == nullptr || path == nullptr)
      return;
    const long file = raw::value(SYS_openat, folder, path, O_PATH | O_CLOEXEC);
    if (file < 0) return;
    char link[64];
    char name[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%ld", file);
    // A file of several names would not be emptied under the others.
    if (raw::call(SYS_newfstatat, file, "", &facts_, AT_EMPTY_PATH) == 0 &&
        S_ISREG(facts_.st_mode) && facts_.st_nlink == 1 &&
        hooks->keeps_file(facts_.st_dev, facts_.st_ino) != 0 && raw::read_link(link, name) == 0)
      is_replaced_ = raw::access_to(name, W_OK) == 0 && raw::remove_file(name) == 0;
    raw::close_file(static_cast<int>(file));
  }

  int flags(int flags) const { return is_replaced_ ? flags | O_CREAT : flags; }
  int opened(int file) const {
    if (is_replaced_ && file >= 0) raw::call(SYS_fchmod, file, facts_.st_mode & 07777);
    return file;
  }

 private:
  bool is_replaced_ = false;
  struct stat facts_ {};
};

int open_at(int folder, const char* path, int flags, mode_t mode) {
  const auto call = next_function(known_openat, "openat");
  const auto open_there = [&](int from, const char* file) {
    const Emptied emptied(from, file, flags);
    return emptied.opened(call(from, file, emptied.flags(flags), mode));
  };
  if (!has_private_files() || path == nullptr) return open_there(folder, path);
  Place place;
  const int error = place_to_open(folder, path, flags, place);
  return error != 0 ? told_result(error) : noted(open_there(place.folder, place.file));
}

/// Calls `call` with the path to open; where there is none, null with errno set.
template <class Call>
FILE* open_stream(const char* path, const char* mode, const Call& call) {
  const auto open_there = [&](const char* file) {
    const Emptied emptied(AT_FDCWD, file, flags_of(mode));
    FILE* const stream = call(file);
    if (stream != nullptr) emptied.opened(fileno(stream));
    return stream;
  };
  if (!has_private_files() || path == nullptr) return open_there(path);
  Place place;
  const int error = place_to_open(AT_FDCWD, path, flags_of(mode), place);
  return told_result(error) != 0 ? nullptr : open_there(static_cast<const char*>(place.file));
}

/// Fills the six letters of a template at random until `make` makes something new of that name;
/// returns what it returned last.
template <class Make>
int make_at_random(char* pattern, int behind, const Make& make) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const size_t length = strlen(pattern);
  char* filled = pattern + length - static_cast<size_t>(behind) - 6;
  if (behind < 0 || length < static_cast<size_t>(behind) + 6 || strncmp(filled, "XXXXXX", 6) != 0) {
    errno = EINVAL;
    return -1;
  }
  int result = -1;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    unsigned char random[6] = {};
    const ssize_t drawn = getrandom(random, sizeof random, GRND_NONBLOCK);
    for (int i = 0; i < 6; ++i)
      filled[i] = letters[(drawn > 0 ? random[i] : rand()) % static_cast<int>(sizeof letters - 1)];
    result = make();
    if (result >= 0 || errno != EEXIST) break;
  }
  return result;
}

int make_temporary(char* pattern, int behind, int flags) {
  if (!has_private_files())
    return next_function(known_mkostemps, "mkostemps")(pattern, behind, flags);
  const int wanted = (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL;
  return make_at_random(pattern, behind,
                        [&] { return open_at(AT_FDCWD, pattern, wanted, S_IRUSR | S_IWUSR); });
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

// The mode that follows the flags of a call that makes a file.
#define SPILLWAY_TAKE_MODE(mode, flags)                 \
  mode_t mode = 0;                                      \
  if (has_mode(flags)) {                                \
    va_list list;                                       \
    va_start(list, flags);                              \
    mode = static_cast<mode_t>(va_arg(list, unsigned)); \
    va_end(list);                                       \
  }

extern "C" {

SPILLWAY_VISIBLE int open(const char* path, int flags, ...) {
  SPILLWAY_TAKE_MODE(mode, flags)
  return open_at(AT_FDCWD, path, flags, mode);
}

SPILLWAY_VISIBLE int open64(const char* path, int flags, ...) {
  SPILLWAY_TAKE_MODE(mode, flags)
  return open_at(AT_FDCWD, path, flags, mode);
}

SPILLWAY_VISIBLE int openat(int folder, const char* path, int flags, ...) {
  SPILLWAY_TAKE_MODE(mode, flags)
  return open_at(folder, path, flags, mode);
}

SPILLWAY_VISIBLE int openat64(int folder, const char* path, int flags, ...) {
  SPILLWAY_TAKE_MODE(mode, flags)
  return open_at(folder, path, flags, mode);
}

// What the compiler makes of calls without a mode where it checks them.
SPILLWAY_VISIBLE int __open_2(const char* path, int flags) {
  return open_at(AT_FDCWD, path, flags, 0);
}

SPILLWAY_VISIBLE int __open64_2(const char* path, int flags) {
  return open_at(AT_FDCWD, path, flags, 0);
}

SPILLWAY_VISIBLE int __openat_2(int folder, const char* path, int flags) {
  return open_at(folder, path, flags, 0);
}

SPILLWAY_VISIBLE int __openat64_2(int folder, const char* path, int flags) {
  return open_at(folder, path, flags, 0);
}

SPILLWAY_VISIBLE int creat(const char* path, mode_t mode) {
  return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

SPILLWAY_VISIBLE int creat64(const char* path, mode_t mode) { return creat(path, mode); }

SPILLWAY_VISIBLE FILE* fopen(const char* path, const char* mode) {
  const auto call = next_function(known_fopen, "fopen");
  return open_stream(path, mode, [&](const char* found) { return call(found, mode); });
}

SPILLWAY_VISIBLE FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

SPILLWAY_VISIBLE FILE* freopen(const char* path, const char* mode, FILE* stream) {
  const auto call = next_function(known_freopen, "freopen");
  return open_stream(path, mode, [&](const char* found) { return call(found, mode, stream); });
}

SPILLWAY_VISIBLE FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return freopen(path, mode, stream);
}

SPILLWAY_VISIBLE int mkstemp(char* pattern) { return make_temporary(pattern, 0, 0); }
SPILLWAY_VISIBLE int mkstemp64(char* pattern) { return make_temporary(pattern, 0, 0); }
SPILLWAY_VISIBLE int mkostemp(char* pattern, int flags) {
  return make_temporary(pattern, 0, flags);
}
SPILLWAY_VISIBLE int mkostemp64(char* pattern, int flags) {
  return make_temporary(pattern, 0, flags);
}
SPILLWAY_VISIBLE int mkstemps(char* pattern, int behind) {
  return make_temporary(pattern, behind, 0);
}
SPILLWAY_VISIBLE int mkstemps64(char* pattern, int behind) {
  return make_temporary(pattern, behind, 0);
}
SPILLWAY_VISIBLE int mkostemps(char* pattern, int behind, int flags) {
  return make_temporary(pattern, behind, flags);
}
SPILLWAY_VISIBLE int mkostemps64(char* pattern, int behind, int flags) {
  return make_temporary(pattern, behind, flags);
}

SPILLWAY_VISIBLE char* mkdtemp(char* pattern) noexcept {
  if (!has_private_files()) return next_function(known_mkdtemp, "mkdtemp")(pattern);
  const int made = make_at_random(pattern, 0, [&] { return mkdir(pattern, S_IRWXU); });
  return made == 0 ? pattern : nullptr;
}

}  // extern "C"
