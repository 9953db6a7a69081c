#pragma once

#include <cstdint>
#include <functional>

#include "spillway/memory/address_arena.h"

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

/// Is told of accesses to pages that are not there, or that are write-protected, by memory that
/// reports them. Implemented by the owner of the residency states. Both calls come without any lock
/// held by the memory.
class AccessSink {
 public:
  virtual ~AccessSink() = default;

  /// Starts whatever brings `page` into a state that allows `access`, and returns at once. Whoever
  /// sleeps on the page is woken by the `map`, `allow_writes` or `wake` that follows. Must not
  /// touch tensor memory or block on I/O. May come late, for a page that allows the access by now:
  /// then `wake` is the answer.
  virtual void begin_access(PageIndex page, Access access) = 0;

  /// The same, but returns only when the access may be tried again, or as soon as `is_interrupted`
  /// says so: a signal waits that the thread does not block. That is taken at the access, as if it
  /// came just before: it ends the process, or a handler of the program runs. On the thread that
  /// stands in the access, inside a signal handler that blocks all signals, with whatever locks the
  /// trainer holds.
  virtual TrapEnd serve_access(PageIndex page, Access access,
                               const std::function<bool()>& is_interrupted) = 0;
};

}  // namespace spillway::memory
