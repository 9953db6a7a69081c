#pragma once

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

#include "userfaultfd/factory.h"

// What newer kernels understand and the headers of older distributions lack. The names are the
// kernel's, so that newer headers simply win.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace spillway::memory::userfaultfd {

inline constexpr std::uint64_t kFeatureWriteProtect = std::uint64_t{1} << 0;
inline constexpr std::uint64_t kFeatureMove = std::uint64_t{1} << 16;  // Linux 6.8

/// Argument of the request that moves pages inside one address space.
struct MoveRequest {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t length = 0;
  std::uint64_t mode = 0;
  std::int64_t moved = 0;  ///< Answer: bytes moved, or a negative error.
};
inline constexpr std::uint64_t kMoveWithoutWake = 1;
inline constexpr unsigned long kMove = _IOWR(0xAA, 0x05, MoveRequest);

/// An open userfaultfd with the features that a mapper needs.
class FaultDescriptor {
 public:
  /// Throws UnsupportedError with the reason and the way to mend it.
  explicit FaultDescriptor(Scope scope);
  FaultDescriptor(const FaultDescriptor&) = delete;
  FaultDescriptor& operator=(const FaultDescriptor&) = delete;
  ~FaultDescriptor();

  int number() const { return descriptor_; }

  /// `mode` is a combination of UFFDIO_REGISTER_MODE_...; throws UnsupportedError.
  void watch(std::byte* address, std::size_t size, std::uint64_t mode);

  /// Zero or an errno. On a failure `moved` bytes from the start did move.
  int move(std::byte* to, std::byte* from, std::size_t size, std::size_t& moved);
  /// The same by copying; with `closed` the pages appear closed for writing. No thread is woken.
  int copy(std::byte* to, const std::byte* from, std::size_t size, bool closed);
  /// Closes for writing, or opens and wakes. Aborts on a refusal.
  void set_closed(std::byte* address, std::size_t size, bool closed);
  void wake(std::byte* address, std::size_t size);

 private:
  int descriptor_ = -1;
};

}  // namespace spillway::memory::userfaultfd
