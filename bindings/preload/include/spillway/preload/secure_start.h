#pragma once

// Tells of a program whose start gives it rights that its caller lacks: the kernel marks such a
// start as secure, and the loader then takes nothing from LD_PRELOAD. Used by the preload library
// and by the command; needs the C library only.

#include <stddef.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace spillway::preload {

enum class SecureStart : unsigned char {
  kNo,
  kOfOtherUser,       ///< Set-user-id or set-group-id, of another user or group than ours.
  kWithCapabilities,  ///< File capabilities (setcap), which root's programs ignore.
};

/// Looks at the file itself; for a script that is its interpreter's. kNo for what cannot be read.
inline SecureStart secure_start_of(const char* path) {
  struct stat facts {};
  if (stat(path, &facts) != 0) return SecureStart::kNo;
  const bool changes_user = (facts.st_mode & S_ISUID) != 0 && facts.st_uid != geteuid();
  const bool changes_group = (facts.st_mode & S_ISGID) != 0 && facts.st_gid != getegid();
  if (changes_user || changes_group) return SecureStart::kOfOtherUser;
  const bool has_capabilities = getxattr(path, "security.capability", nullptr, 0) > 0;
  return has_capabilities && getuid() != 0 ? SecureStart::kWithCapabilities : SecureStart::kNo;
}

}  // namespace spillway::preload
