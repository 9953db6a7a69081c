#pragma once

#include <span>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::swap {

/// Looks on while the engine transfers. Called by the I/O thread, without any lock of the engine;
/// while it lasts nothing else is transferred, so it must be quick, and must neither call the
/// engine nor take a lock that a thread may hold while it touches a paged storage.
class TransferObserver {
 public:
  virtual ~TransferObserver() = default;

  /// A transfer of one page goes to the store. Its tag is unique among those under way. `range` has
  /// the page; `is_awaited`: somebody stands and waits for this read.
  virtual void begin_transfer(const Transfer& transfer, StorageId range, bool is_awaited,
                              TimePoint at) = 0;

  /// These have ended, failed ones too, each of which had begun; `resident` is SwapEngine::resident
  /// after them. Not called for what is under way in a forked child, which has no I/O thread.
  virtual void end_transfers(std::span<const TransferResult> results, TimePoint at,
                             Bytes resident) = 0;

  /// The I/O thread did not run, far longer than it meant to wait: the whole process was stopped
  /// (SIGSTOP, a batch system that suspends jobs). How long transfers took that were under way
  /// tells nothing of the store.
  virtual void stood_still(TimePoint /*from*/, TimePoint /*until*/) {}
};

}  // namespace spillway::swap
