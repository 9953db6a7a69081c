#pragma once

#include <cstdint>

namespace spillway::memory {

enum class Access : std::uint8_t { kRead, kWrite };

/// How a trap was left.
enum class TrapEnd : std::uint8_t {
  kServed,
  kInterrupted,  ///< A signal is to be taken first; then the access traps again.
};

enum class MoveResult : std::uint8_t {
  kMoved,
  /// The kernel holds the frame: nothing changed. Direct I/O into it has not ended, or the program
  /// has locked it (mlock). Where a filter of system calls refuses process_vm_readv, also when the
  /// page is write-protected and a forked child shares it: after `allow_writes` it can leave. A
  /// page whose contents nobody needs can be dropped.
  kBusy,
};

}  // namespace spillway::memory
