// Extended attributes of files that may be the process's own (private_files.h): copying programs
// look for them everywhere.

#include <sys/xattr.h>

#include "file_calls.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

template <class... Words>
ssize_t tell(long number, const char* path, Follow follow, Words... words) {
  return at_place(AT_FDCWD, path, follow, [&](int, const char* found) {
    return static_cast<ssize_t>(syscall(number, found, words...));
  });
}

template <class... Words>
int change(long number, const char* path, Follow follow, Words... words) {
  return change_facts(AT_FDCWD, path, follow, [&](int, const char* found) {
    return static_cast<int>(syscall(number, found, words...));
  });
}

}  // namespace
}  // namespace spillway::preload

using namespace spillway::preload;  // NOLINT: what follows stands for functions of the C library.

extern "C" {

SPILLWAY_VISIBLE ssize_t getxattr(const char* path, const char* name, void* value,
                                  size_t size) noexcept {
  return tell(SYS_getxattr, path, Follow::kYes, name, value, size);
}

SPILLWAY_VISIBLE ssize_t lgetxattr(const char* path, const char* name, void* value,
                                   size_t size) noexcept {
  return tell(SYS_lgetxattr, path, Follow::kNo, name, value, size);
}

SPILLWAY_VISIBLE ssize_t listxattr(const char* path, char* list, size_t size) noexcept {
  return tell(SYS_listxattr, path, Follow::kYes, list, size);
}

SPILLWAY_VISIBLE ssize_t llistxattr(const char* path, char* list, size_t size) noexcept {
  return tell(SYS_llistxattr, path, Follow::kNo, list, size);
}

SPILLWAY_VISIBLE int setxattr(const char* path, const char* name, const void* value, size_t size,
                              int flags) noexcept {
  return change(SYS_setxattr, path, Follow::kYes, name, value, size, flags);
}

SPILLWAY_VISIBLE int lsetxattr(const char* path, const char* name, const void* value, size_t size,
                               int flags) noexcept {
  return change(SYS_lsetxattr, path, Follow::kNo, name, value, size, flags);
}

SPILLWAY_VISIBLE int removexattr(const char* path, const char* name) noexcept {
  return change(SYS_removexattr, path, Follow::kYes, name);
}

SPILLWAY_VISIBLE int lremovexattr(const char* path, const char* name) noexcept {
  return change(SYS_lremovexattr, path, Follow::kNo, name);
}

}  // extern "C"
