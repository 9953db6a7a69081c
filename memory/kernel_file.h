#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

namespace spillway::memory {

/// A file of the kernel, read with system calls alone: a signal handler has neither streams nor the
/// heap.
class KernelFile {
 public:
  // By number: under the preload library `open` may be another function.
  explicit KernelFile(const char* path)
      : file_(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0))) {}
  ~KernelFile() {
    if (file_ >= 0) syscall(SYS_close, file_);
  }
  KernelFile(const KernelFile&) = delete;
  KernelFile& operator=(const KernelFile&) = delete;

  /// Bytes read into `buffer`, ended by a zero; 0 at the end and where there is no such file.
  std::size_t read_some(std::span<char> buffer) {
    const long got = file_ < 0 ? 0 : syscall(SYS_read, file_, buffer.data(), buffer.size() - 1);
    const std::size_t size = got > 0 ? static_cast<std::size_t>(got) : 0;
    buffer[size] = '\0';
    return size;
  }

 private:
  int file_;
};

/// Bytes of mappings of this process that are locked in memory, whether they hold anything or not.
inline std::uint64_t locked_bytes() {
  std::array<char, 4096> text;
  if (KernelFile("/proc/self/status").read_some(text) == 0) return 0;
  const char* const line = std::strstr(text.data(), "VmLck:");
  return line == nullptr ? 0 : std::strtoull(line + std::strlen("VmLck:"), nullptr, 10) * 1024;
}

}  // namespace spillway::memory
