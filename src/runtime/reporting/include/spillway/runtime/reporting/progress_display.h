#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "spillway/swap/swap_engine.h"

namespace spillway::runtime {

/// The progress line on stderr: rewritten after each step, or a line of its own every few seconds
/// where the program prints on the same terminal. Any thread.
class ProgressDisplay {
 public:
  ProgressDisplay(bool is_shown, const Clock& clock);

  bool is_shown() const { return is_shown_; }
  /// What the engine of a device counts now.
  struct DeviceCounts {
    std::string device;
    swap::SwapStatistics memory;
  };
  /// A step of that length has ended; `memory` is what the host's engine counts now.
  void show(Duration step, const swap::SwapStatistics& memory,
            std::span<const DeviceCounts> devices = {});
  /// Ends a line that is still open, so that what follows begins a new one.
  void end_line();

 private:
  const bool is_shown_;
  const bool shares_terminal_;  ///< With the program's own output.
  const Clock& clock_;
  std::mutex mutex_;
  std::atomic<std::uint64_t> steps_{0};
  TimePoint last_shown_;
  Bytes last_read_, last_written_;  ///< By all stores, when it was shown last.
};

}  // namespace spillway::runtime
