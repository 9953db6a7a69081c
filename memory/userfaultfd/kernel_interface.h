#pragma once

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "spillway/base/own_descriptors.h"
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

/// An open userfaultfd with the features that a mapper needs. It lies in a table that the program
/// cannot reach; in the program's own table there is a second number for it, so that any thread may
/// ask for pages at once. The program may close that number or make it mean another file: the
/// kernel then refuses the request, which only a userfaultfd understands, and the number is
/// replaced.
class FaultDescriptor {
 public:
  /// Throws UnsupportedError with the reason and the way to mend it.
  explicit FaultDescriptor(Scope scope);
  FaultDescriptor(const FaultDescriptor&) = delete;
  FaultDescriptor& operator=(const FaultDescriptor&) = delete;
  ~FaultDescriptor();

  /// Where it lies, for the thread that waits for faults and reads them.
  OwnDescriptors& table() { return *own_; }
  int number_there() const { return number_there_; }

  /// `mode` is a combination of UFFDIO_REGISTER_MODE_...; throws UnsupportedError.
  void watch(std::byte* address, std::size_t size, std::uint64_t mode);

  /// Zero or an errno. On a failure `moved` bytes from the start did move.
  int move(std::byte* to, std::byte* from, std::size_t size, std::size_t& moved);
  /// The same by copying; with `write_protected` the pages appear write-protected. No thread is
  /// woken.
  int copy(std::byte* to, const std::byte* from, std::size_t size, bool write_protected);
  /// Write-protects, or makes writable and wakes. Aborts on a refusal.
  void set_write_protected(std::byte* address, std::size_t size, bool write_protected);
  void wake(std::byte* address, std::size_t size);
  /// Looks whether the number in the program's table still means this userfaultfd. To be called
  /// before a wake alone, which another userfaultfd would take without an error.
  void replace_lost_number();

 private:
  /// Zero or an errno.
  int ask(unsigned long request, void* argument);
  /// The number in the table of the calling thread, as far as is known.
  std::atomic<int>& number_here();

  const std::shared_ptr<OwnDescriptors> own_;
  int number_there_ = -1;
  std::atomic<int> number_of_program_{-1};
  FileIdentity identity_;
  std::mutex replacing_;
};

}  // namespace spillway::memory::userfaultfd
