#include "store/unlinked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "spillway/base/error.h"
#include "spillway/base/own_files.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {
namespace {

// For file systems without O_TMPFILE (NFS, some FUSE): the name exists for a moment only.
int open_with_short_lived_name(const std::string& directory) {
  std::random_device random;
  std::string name;
  int fd = -1;
  // What lies there already is neither opened nor followed.
  do {
    name = message("{}/.spillway-{}", directory, random());
    fd = open_own_file(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  } while (fd < 0 && errno == EEXIST);
  if (fd < 0) return fd;
  const bool is_private = ::fchmod(fd, S_IRUSR | S_IWUSR) == 0;
  if (remove_own_file(name) == 0 && is_private) return fd;
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return -1;
}

FileDescriptor open_anywhere_in(const std::string& directory) {
  // O_EXCL: nobody can give the file a name later.
  constexpr int kNameless = O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC;
  int fd = open_own_file(directory, kNameless, S_IRUSR | S_IWUSR);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL))
    fd = open_with_short_lived_name(directory);
  if (fd < 0) throw IoError("cannot create a file in {}: {}", directory, std::strerror(errno));
  return FileDescriptor(fd);
}

bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Writes one block and reads it back. Returns 0 or an errno value; EBADMSG when it came back
// different.
int try_block(int fd) {
  struct Freed {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::unique_ptr<std::byte, Freed> block(
      static_cast<std::byte*>(std::aligned_alloc(kTransferAlignment, kTransferAlignment)));
  if (!block) return ENOMEM;
  constexpr int kPattern = 0x5a;
  std::memset(block.get(), kPattern, kTransferAlignment);
  ssize_t moved = ::pwrite(fd, block.get(), kTransferAlignment, 0);
  if (moved < 0) return errno;
  if (moved != static_cast<ssize_t>(kTransferAlignment)) return ENOSPC;
  std::memset(block.get(), 0, kTransferAlignment);
  moved = ::pread(fd, block.get(), kTransferAlignment, 0);
  if (moved < 0) return errno;
  const bool is_same = moved == static_cast<ssize_t>(kTransferAlignment) &&
                       block.get()[0] == std::byte{kPattern} &&
                       std::memcmp(block.get(), block.get() + 1, kTransferAlignment - 1) == 0;
  return is_same ? 0 : EBADMSG;
}

}  // namespace

UnlinkedFile open_unlinked_file(const std::string& directory) {
  UnlinkedFile file;
  file.descriptor = open_anywhere_in(directory);
  const int fd = file.descriptor.get();
  file.is_direct = set_direct(fd, true);
  int error = file.is_direct ? 0 : errno;
  if (file.is_direct) error = try_block(fd);
  if (error == EINVAL || error == EOPNOTSUPP) {
    file.why_buffered = message("{} refuses direct I/O in blocks of {} bytes ({})", directory,
                                kTransferAlignment, std::strerror(error));
    file.is_direct = false;
    set_direct(fd, false);
    error = try_block(fd);
  }
  if (error == ENOSPC || error == EDQUOT)
    throw IoError("No space left in {} ({})", directory, std::strerror(error));
  if (error != 0)
    throw IoError("a first block written to {} did not come back: {}", directory,
                  std::strerror(error));
  return file;
}

}  // namespace spillway::swap
