#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace spillway::preload::raw {

// The kernel's calls on files, which go by the functions of the same name in this library. Each
// returns 0 or the error, and leaves errno as it was unless its comment says otherwise.

/// The error of a system call, 0 where it went well.
template <class... Words>
int call(long number, Words... words) {
  const int before = errno;
  const int error = syscall(number, words...) < 0 ? errno : 0;
  errno = before;
  return error;
}

/// The result of a system call, or the error, negative.
template <class... Words>
long value(long number, Words... words) {
  const int before = errno;
  const long result = syscall(number, words...);
  const long told = result < 0 ? -errno : result;
  errno = before;
  return told;
}

inline int facts_of(const char* path, struct stat& facts) {
  return call(SYS_newfstatat, AT_FDCWD, path, &facts, AT_SYMLINK_NOFOLLOW);
}

/// With the rights that count for opening.
inline int access_to(const char* path, int wanted) {
  const int error = call(SYS_faccessat2, AT_FDCWD, path, wanted, AT_EACCESS);
  return error == ENOSYS ? call(SYS_faccessat, AT_FDCWD, path, wanted) : error;
}

/// A descriptor, or the error, negative.
inline int open_file(const char* path, int flags, mode_t mode = 0) {
  return static_cast<int>(value(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode));
}

inline void close_file(int file) { call(SYS_close, file); }

inline int make_folder(const char* path, mode_t mode) {
  return call(SYS_mkdirat, AT_FDCWD, path, mode);
}

inline int rename_file(const char* from, const char* to, unsigned flags = 0) {
  return call(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

inline int remove_file(const char* path) { return call(SYS_unlinkat, AT_FDCWD, path, 0); }

inline int remove_folder(const char* path) {
  return call(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

inline int make_symlink(const char* target, const char* path) {
  return call(SYS_symlinkat, target, AT_FDCWD, path);
}

inline int change_mode(const char* path, mode_t mode) {
  return call(SYS_fchmodat, AT_FDCWD, path, mode);
}

/// The text of a link, or of what /proc tells, as a string that is cut to PATH_MAX - 1.
inline int read_link(const char* path, char (&text)[PATH_MAX]) {
  const long length = value(SYS_readlinkat, AT_FDCWD, path, &text[0], sizeof text - 1);
  if (length < 0) return static_cast<int>(-length);
  text[length] = '\0';
  return 0;
}

/// Calls `told` with the name of each entry of a folder but "." and "..", until it returns an
/// error; returns that.
template <class Told>
int each_entry(const char* path, const Told& told) {
  struct Entry {  // linux_dirent64
    unsigned long inode;
    long next;
    unsigned short size;
    unsigned char type;
    char name[1];
  };
  const int folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return -folder;
  alignas(8) char room[4096];
  int error = 0;
  while (error == 0) {
    const long filled = value(SYS_getdents64, folder, &room[0], sizeof room);
    if (filled < 0) error = static_cast<int>(-filled);
    if (filled <= 0) break;
    for (long at = 0; at < filled && error == 0;) {
      const auto* entry = reinterpret_cast<const Entry*>(room + at);
      at += entry->size;
      if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0)
        error = told(entry->name);
    }
  }
  close_file(folder);
  return error;
}

}  // namespace spillway::preload::raw
