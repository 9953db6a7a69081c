#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../order/access_check.h"
#include "address_space.h"

namespace spillway::emulated {

/// A piece of work that has pinned memory of the host in use, from its submission until the host
/// has learned that it is done.
struct PinnedUse {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  Use kind = Use::kRead;  // By the device.
  int stream = -1;
  std::uint64_t tick = 0;
  std::string what;
};

/// Protects pinned memory that a device has in use: the host must not write what is read, and not
/// touch what is written. Whole pages alone: what else stands in the first and the last page of a
/// use may be the host's. Thread-safe.
class PinnedMemory {
 public:
  static PinnedMemory& of_process();

  /// `range` is where the bytes are allocated: its last page has nothing else in it.
  void protect(const Range& range, PinnedUse use);
  /// Ends the uses that have happened before what the host knows.
  void release(const Clock& host);
  /// Ends the uses in a range that is freed.
  void forget(const Range& range);

  /// Copies on behalf of a device, past the protection.
  void read(void* to, const void* from, std::size_t bytes);
  void write(void* to, const void* from, std::size_t bytes);

  /// The use that protects the page of this address, if any. For handlers of faults.
  std::optional<PinnedUse> find(const void* address);
  /// Opens the page of this address, for work of a device that goes there itself. False where it is
  /// not protected.
  bool open_page(const void* address);

 private:
  PinnedMemory();
  void apply(std::uintptr_t begin, std::uintptr_t end);

  std::mutex mutex_;
  std::vector<PinnedUse> uses_;  // Page by page.
  int memory_of_process_ = -1;   // /proc/self/mem, which ignores protections.
};

}  // namespace spillway::emulated
