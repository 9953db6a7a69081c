#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace spillway {

// Calls on files that the runtime makes for itself. By number: under the preload library the
// functions of these names may mean files that only this rank of a job sees, while what the runtime
// writes is the user's on every rank. Results and errno are those of the functions.

/// `open`.
inline int open_own_file(const std::string& path, int flags, mode_t mode = 0) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, mode));
}

/// `rename`.
inline int rename_own_file(const std::string& from, const std::string& to) {
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str()));
}

/// `unlink`.
inline int remove_own_file(const std::string& path) {
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path.c_str(), 0));
}

}  // namespace spillway
