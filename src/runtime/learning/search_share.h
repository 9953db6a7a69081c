#pragma once

#include <mutex>

#include "spillway/base/clock.h"

namespace spillway::runtime {

/// Holds searches for better plans back, so that together they take no more than a hundredth of one
/// processor's time. The lowest priority alone does not do that: where an operator leaves a core
/// idle, a search takes it, and then threads that wake up, and page tables that change, have to
/// wait for it (benchmarks/what_does_planning_cost). Any thread.
class SearchShare {
 public:
  /// `processors`: how many the process may use, above 0. Of less than one it is a hundredth of
  /// that.
  SearchShare(const Clock& clock, double processors);

  /// A search has used a processor for so long since its last call. Returns how long it has to
  /// rest.
  Duration rest_after(Duration used);

 private:
  const Clock& clock_;
  const double part_;  ///< Of the time that passes.
  std::mutex mutex_;
  TimePoint latest_;
  Duration left_;  ///< That may be used at once; below 0: to be rested for.
};

}  // namespace spillway::runtime
