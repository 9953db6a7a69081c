#include "support/small_file_system.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace spillway::swap {
namespace {

// Returns what is wrong, or nothing.
std::string run(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int refused =
      ::posix_spawnp(&child, arguments.front(), nullptr, nullptr, arguments.data(), environ);
  if (refused != 0) return "cannot run " + command.front() + ": " + std::strerror(refused);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return command.front() + " failed";
}

}  // namespace

SmallFileSystem::SmallFileSystem(SmallKind kind, Bytes size) {
  if (::mkdir(path().c_str(), 0700) != 0)
    trouble_ = std::string("cannot create a mount point: ") + std::strerror(errno);
  else if (::geteuid() != 0)
    trouble_ = "mounting a small file system needs root";
  else if (kind == SmallKind::kTmpfs)
    mount_tmpfs(size);
  else
    mount_ext4(size);
}

SmallFileSystem::~SmallFileSystem() {
  if (is_mounted_) ::umount2(path().c_str(), MNT_DETACH);
}

void SmallFileSystem::mount_tmpfs(Bytes size) {
  const std::string options = "size=" + std::to_string(size.count());
  is_mounted_ = ::mount("spillway-test", path().c_str(), "tmpfs", MS_NOSUID, options.c_str()) == 0;
  if (!is_mounted_) trouble_ = std::string("cannot mount a tmpfs: ") + std::strerror(errno);
}

void SmallFileSystem::mount_ext4(Bytes size) {
  const std::string image = place_.path() + "/image";
  const int fd = ::open(image.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  const bool is_sized = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size.count())) == 0;
  if (fd >= 0) ::close(fd);
  if (!is_sized) {
    trouble_ = std::string("cannot create an image: ") + std::strerror(errno);
    return;
  }
  trouble_ = run({"mkfs.ext4", "-q", "-F", "-m", "0", image});
  if (trouble_.empty()) trouble_ = run({"mount", "-o", "loop", image, path()});
  is_mounted_ = trouble_.empty();
}

Bytes SmallFileSystem::free() const {
  struct statvfs system {};
  if (::statvfs(path().c_str(), &system) != 0) return Bytes();
  return Bytes(std::uint64_t{system.f_bavail} * std::uint64_t{system.f_frsize});
}

}  // namespace spillway::swap
