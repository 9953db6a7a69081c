// The functions that tell of a file or change its name, its facts or its length. Where the files of
// the process are its own (private_files.h), they mean those; else they are as before.

#include "file_calls.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <utime.h>

#include "next_function.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(&::faccessat) known_faccessat;
decltype(&::fchmodat) known_fchmodat;
decltype(&::statvfs) known_statvfs;

template <class... Words>
int system_call(long number, Words... words) {
  return static_cast<int>(syscall(number, words...));
}

int tell_facts(int folder, const char* path, void* facts, int flags) {
  return at_place(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                  [&](int at, const char* found) {
                    return system_call(SYS_newfstatat, at, found, facts, flags);
                  });
}

int tell_access(int folder, const char* path, int wanted, int flags) {
  const auto call = next_function(known_faccessat, "faccessat");
  return at_place(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                  [&](int at, const char* found) { return call(at, found, wanted, flags); });
}

ssize_t tell_link(int folder, const char* path, char* text, size_t size) {
  if (!has_private_files() || path == nullptr)
    return syscall(SYS_readlinkat, folder, path, text, size);
  Place place;
  int error = find_place(folder, path, Follow::kNo, place);
  if (error == 0 && place.kind == Kind::kMoved && !S_ISLNK(place.facts.st_mode)) error = EINVAL;
  if (error != 0) return told_result(error);
  char whole[PATH_MAX];
  const long length = syscall(SYS_readlinkat, place.folder, place.file, whole, sizeof whole - 1);
  if (length < 0) return length;
  whole[length] = '\0';
  show_as_seen(whole);
  const size_t shown = strlen(whole);
  memcpy(text, whole, shown < size ? shown : size);
  return static_cast<ssize_t>(shown < size ? shown : size);
}

/// For calls on an open file: one that all see is changed under its name, in the process's own
/// copy. The program still reads the shared one by the descriptor.
template <class Call, class ByName>
int change_open_file(int file, const Call& call, const ByName& by_name) {
  if (!has_private_files()) return call();
  char link[64];
  char path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  Place place;
  const bool is_shared = raw::read_link(link, path) == 0 && path[0] == '/' &&
                         find_place(AT_FDCWD, path, Follow::kNo, place) == 0 &&
                         place.kind != Kind::kOutside;
  if (!is_shared) return call();
  return place.exists() ? by_name(static_cast<const char*>(path)) : 0;
}

int change_mode(int folder, const char* path, mode_t mode, int flags) {
  const auto call = next_function(known_fchmodat, "fchmodat");
  return change_facts(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                      [&](int at, const char* found) { return call(at, found, mode, flags); });
}

int change_times(int folder, const char* path, const timespec* times, int flags) {
  return change_facts(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                      [&](int at, const char* found) {
                        return system_call(SYS_utimensat, at, found, times, flags);
                      });
}

/// Times in nanoseconds, of which null means now as of those in microseconds.
class ExactTimes {
 public:
  explicit ExactTimes(const timeval* times) : is_given_(times != nullptr) {
    for (int i = 0; is_given_ && i < 2; ++i) times_[i] = {times[i].tv_sec, times[i].tv_usec * 1000};
  }
  const timespec* get() const { return is_given_ ? &times_[0] : nullptr; }

 private:
  bool is_given_;
  timespec times_[2] = {};
};

int change_times(int folder, const char* path, const timeval* times, int flags) {
  return change_times(folder, path, ExactTimes(times).get(), flags);
}

int change_owner(int folder, const char* path, uid_t user, gid_t group, int flags) {
  return change_facts(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                      [&](int at, const char* found) {
                        return system_call(SYS_fchownat, at, found, user, group, flags);
                      });
}

int cut(const char* path, off_t length) {
  const auto call = [&](int, const char* found) {
    return system_call(SYS_truncate, found, length);
  };
  const auto change = [&](Place& place) {
    const int error = ready_to_open(place, O_WRONLY);
    return error != 0 || call(AT_FDCWD, place.file) == 0 ? error : errno;
  };
  return change_place(AT_FDCWD, path, Follow::kYes, change, call);
}

int make_folder(int folder, const char* path, mode_t mode) {
  return change_place(
      folder, path, Follow::kNo, [&](Place& place) { return make_private_folder(place, mode); },
      [&](int at, const char* found) { return system_call(SYS_mkdirat, at, found, mode); });
}

int remove_at(int folder, const char* path, int flags) {
  const bool is_folder = (flags & AT_REMOVEDIR) != 0;
  return change_place(
      folder, path, Follow::kNo,
      [&](Place& place) {
        return is_folder ? remove_private_folder(place) : remove_private(place);
      },
      [&](int at, const char* found) { return system_call(SYS_unlinkat, at, found, flags); });
}

/// A file or an empty folder.
int remove_any(const char* path) {
  const int result = remove_at(AT_FDCWD, path, 0);
  return result != 0 && errno == EISDIR ? remove_at(AT_FDCWD, path, AT_REMOVEDIR) : result;
}

int rename_real(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (flags == 0) return system_call(SYS_renameat, from_folder, from, to_folder, to);
  return system_call(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (!has_private_files() || from == nullptr || to == nullptr)
    return rename_real(from_folder, from, to_folder, to, flags);
  Place source;
  Place target;
  int error = find_place(from_folder, from, Follow::kNo, source);
  if (error == 0) error = find_place(to_folder, to, Follow::kNo, target);
  if (error != 0) return told_result(error);
  if (source.kind == Kind::kOutside && target.kind == Kind::kOutside)
    return rename_real(source.folder, source.file, target.folder, target.file, flags);
  return told_result(rename_private(source, target, flags));
}

/// For what makes something under a new name: `call` makes it.
template <class Call>
int make_new(int folder, const char* path, const Call& call) {
  const auto change = [&](Place& place) {
    const int error = ready_for_new(place);
    return error != 0 || call(AT_FDCWD, place.file) == 0 ? error : errno;
  };
  return change_place(folder, path, Follow::kNo, change, call);
}

int link_at(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  const auto make = [&](int source_folder, const char* source) {
    return make_new(to_folder, to, [&](int at, const char* found) {
      return system_call(SYS_linkat, source_folder, source, at, found, flags);
    });
  };
  if (!has_private_files() || from == nullptr) return make(from_folder, from);
  Place source;
  int error =
      find_place(from_folder, from, follow_unless((flags & AT_SYMLINK_FOLLOW) == 0), source);
  if (error == 0 && source.kind != Kind::kOutside)
    error = source.is_folder() ? EPERM : make_private(source);
  return error != 0 ? told_result(error) : make(source.folder, source.file);
}

int make_symlink(const char* target, int folder, const char* path) {
  return make_new(folder, path, [&](int at, const char* found) {
    return system_call(SYS_symlinkat, target, at, found);
  });
}

int make_node(int folder, const char* path, mode_t mode, dev_t device) {
  return make_new(folder, path, [&](int at, const char* found) {
    return system_call(SYS_mknodat, at, found, mode, device);
  });
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE int stat(const char* path, struct stat* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, 0);
}
SPILLWAY_VISIBLE int stat64(const char* path, struct stat64* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, 0);
}
SPILLWAY_VISIBLE int lstat(const char* path, struct stat* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int lstat64(const char* path, struct stat64* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int fstatat(int folder, const char* path, struct stat* facts, int flags) noexcept {
  return tell_facts(folder, path, facts, flags);
}
SPILLWAY_VISIBLE int fstatat64(int folder, const char* path, struct stat64* facts,
                               int flags) noexcept {
  return tell_facts(folder, path, facts, flags);
}

// What programs call that were built with a C library before 2.33.
SPILLWAY_VISIBLE int __xstat(int, const char* path, struct stat* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, 0);
}
SPILLWAY_VISIBLE int __xstat64(int, const char* path, struct stat64* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, 0);
}
SPILLWAY_VISIBLE int __lxstat(int, const char* path, struct stat* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int __lxstat64(int, const char* path, struct stat64* facts) noexcept {
  return tell_facts(AT_FDCWD, path, facts, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int __fxstatat(int, int folder, const char* path, struct stat* facts,
                                int flags) noexcept {
  return tell_facts(folder, path, facts, flags);
}
SPILLWAY_VISIBLE int __fxstatat64(int, int folder, const char* path, struct stat64* facts,
                                  int flags) noexcept {
  return tell_facts(folder, path, facts, flags);
}

SPILLWAY_VISIBLE int statx(int folder, const char* path, int flags, unsigned wanted,
                           struct statx* facts) noexcept {
  return at_place(folder, path, follow_unless((flags & AT_SYMLINK_NOFOLLOW) != 0),
                  [&](int at, const char* found) {
                    return system_call(SYS_statx, at, found, flags, wanted, facts);
                  });
}

SPILLWAY_VISIBLE int statfs(const char* path, struct statfs* facts) noexcept {
  return at_place(AT_FDCWD, path, Follow::kYes,
                  [&](int, const char* found) { return system_call(SYS_statfs, found, facts); });
}
SPILLWAY_VISIBLE int statfs64(const char* path, struct statfs64* facts) noexcept {
  return at_place(AT_FDCWD, path, Follow::kYes,
                  [&](int, const char* found) { return system_call(SYS_statfs, found, facts); });
}
SPILLWAY_VISIBLE int statvfs(const char* path, struct statvfs* facts) noexcept {
  const auto call = next_function(known_statvfs, "statvfs");
  return at_place(AT_FDCWD, path, Follow::kYes,
                  [&](int, const char* found) { return call(found, facts); });
}
SPILLWAY_VISIBLE int statvfs64(const char* path, struct statvfs64* facts) noexcept {
  return statvfs(path, reinterpret_cast<struct statvfs*>(facts));
}

SPILLWAY_VISIBLE int access(const char* path, int wanted) noexcept {
  return tell_access(AT_FDCWD, path, wanted, 0);
}
SPILLWAY_VISIBLE int faccessat(int folder, const char* path, int wanted, int flags) noexcept {
  return tell_access(folder, path, wanted, flags);
}
SPILLWAY_VISIBLE int eaccess(const char* path, int wanted) noexcept {
  return tell_access(AT_FDCWD, path, wanted, AT_EACCESS);
}
SPILLWAY_VISIBLE int euidaccess(const char* path, int wanted) noexcept {
  return tell_access(AT_FDCWD, path, wanted, AT_EACCESS);
}

SPILLWAY_VISIBLE ssize_t readlink(const char* path, char* text, size_t size) noexcept {
  return tell_link(AT_FDCWD, path, text, size);
}
SPILLWAY_VISIBLE ssize_t readlinkat(int folder, const char* path, char* text,
                                    size_t size) noexcept {
  return tell_link(folder, path, text, size);
}
SPILLWAY_VISIBLE ssize_t __readlink_chk(const char* path, char* text, size_t size, size_t room) {
  if (size > room) abort();
  return tell_link(AT_FDCWD, path, text, size);
}
SPILLWAY_VISIBLE ssize_t __readlinkat_chk(int folder, const char* path, char* text, size_t size,
                                          size_t room) {
  if (size > room) abort();
  return tell_link(folder, path, text, size);
}

SPILLWAY_VISIBLE int chmod(const char* path, mode_t mode) noexcept {
  return change_mode(AT_FDCWD, path, mode, 0);
}
SPILLWAY_VISIBLE int fchmodat(int folder, const char* path, mode_t mode, int flags) noexcept {
  return change_mode(folder, path, mode, flags);
}
SPILLWAY_VISIBLE int fchmod(int file, mode_t mode) noexcept {
  return change_open_file(
      file, [&] { return system_call(SYS_fchmod, file, mode); },
      [&](const char* path) { return change_mode(AT_FDCWD, path, mode, 0); });
}
SPILLWAY_VISIBLE int fchown(int file, uid_t user, gid_t group) noexcept {
  return change_open_file(
      file, [&] { return system_call(SYS_fchown, file, user, group); },
      [&](const char* path) { return change_owner(AT_FDCWD, path, user, group, 0); });
}
SPILLWAY_VISIBLE int chown(const char* path, uid_t user, gid_t group) noexcept {
  return change_owner(AT_FDCWD, path, user, group, 0);
}
SPILLWAY_VISIBLE int lchown(const char* path, uid_t user, gid_t group) noexcept {
  return change_owner(AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int fchownat(int folder, const char* path, uid_t user, gid_t group,
                              int flags) noexcept {
  return change_owner(folder, path, user, group, flags);
}

SPILLWAY_VISIBLE int utimensat(int folder, const char* path, const timespec times[2],
                               int flags) noexcept {
  return change_times(folder, path, times, flags);
}
SPILLWAY_VISIBLE int futimens(int file, const timespec times[2]) noexcept {
  return change_open_file(
      file, [&] { return system_call(SYS_utimensat, file, nullptr, times, 0); },
      [&](const char* path) { return change_times(AT_FDCWD, path, times, 0); });
}
SPILLWAY_VISIBLE int futimes(int file, const timeval times[2]) noexcept {
  return futimens(file, ExactTimes(times).get());
}
SPILLWAY_VISIBLE int utimes(const char* path, const timeval times[2]) noexcept {
  return change_times(AT_FDCWD, path, times, 0);
}
SPILLWAY_VISIBLE int lutimes(const char* path, const timeval times[2]) noexcept {
  return change_times(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}
SPILLWAY_VISIBLE int futimesat(int folder, const char* path, const timeval times[2]) noexcept {
  return change_times(folder, path, times, 0);
}
SPILLWAY_VISIBLE int utime(const char* path, const utimbuf* times) noexcept {
  if (times == nullptr)
    return change_times(AT_FDCWD, path, static_cast<const timespec*>(nullptr), 0);
  const timespec exact[] = {{times->actime, 0}, {times->modtime, 0}};
  return change_times(AT_FDCWD, path, exact, 0);
}

SPILLWAY_VISIBLE int truncate(const char* path, off_t length) noexcept { return cut(path, length); }
SPILLWAY_VISIBLE int truncate64(const char* path, off64_t length) noexcept {
  return cut(path, length);
}

SPILLWAY_VISIBLE int mkdir(const char* path, mode_t mode) noexcept {
  return make_folder(AT_FDCWD, path, mode);
}
SPILLWAY_VISIBLE int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return make_folder(folder, path, mode);
}
SPILLWAY_VISIBLE int unlink(const char* path) noexcept { return remove_at(AT_FDCWD, path, 0); }
SPILLWAY_VISIBLE int unlinkat(int folder, const char* path, int flags) noexcept {
  return remove_at(folder, path, flags);
}
SPILLWAY_VISIBLE int rmdir(const char* path) noexcept {
  return remove_at(AT_FDCWD, path, AT_REMOVEDIR);
}
SPILLWAY_VISIBLE int remove(const char* path) noexcept { return remove_any(path); }

SPILLWAY_VISIBLE int rename(const char* from, const char* to) noexcept {
  return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
SPILLWAY_VISIBLE int renameat(int from_folder, const char* from, int to_folder,
                              const char* to) noexcept {
  return rename_at(from_folder, from, to_folder, to, 0);
}
SPILLWAY_VISIBLE int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                               unsigned flags) noexcept {
  return rename_at(from_folder, from, to_folder, to, flags);
}

SPILLWAY_VISIBLE int link(const char* from, const char* to) noexcept {
  return link_at(AT_FDCWD, from, AT_FDCWD, to, 0);
}
SPILLWAY_VISIBLE int linkat(int from_folder, const char* from, int to_folder, const char* to,
                            int flags) noexcept {
  return link_at(from_folder, from, to_folder, to, flags);
}
SPILLWAY_VISIBLE int symlink(const char* target, const char* path) noexcept {
  return make_symlink(target, AT_FDCWD, path);
}
SPILLWAY_VISIBLE int symlinkat(const char* target, int folder, const char* path) noexcept {
  return make_symlink(target, folder, path);
}
SPILLWAY_VISIBLE int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return make_node(AT_FDCWD, path, mode, device);
}
SPILLWAY_VISIBLE int mknodat(int folder, const char* path, mode_t mode, dev_t device) noexcept {
  return make_node(folder, path, mode, device);
}
SPILLWAY_VISIBLE int mkfifo(const char* path, mode_t mode) noexcept {
  return make_node(AT_FDCWD, path, (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFIFO, 0);
}
SPILLWAY_VISIBLE int mkfifoat(int folder, const char* path, mode_t mode) noexcept {
  return make_node(folder, path, (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFIFO, 0);
}

}  // extern "C"
