#pragma once

#include <vector>

#include "spillway/planner/partition/segment_costs.h"

namespace spillway::partition {

/// Peaks of memory as mCAP and CAPSlog predict them, whatever the device and without memory
/// reduction: what the first unit has alone, and what each further one adds. `added` of a unit is
/// how much higher the peak is with it behind the units of a window than without it; windows of so
/// many units begin at its multiples. Their profiling runs a pipeline for these figures, ours asks
/// the costs of the first stage.
class PredictedPeaks {
 public:
  PredictedPeaks(const SegmentCosts& costs, std::uint32_t window) {
    const auto peak = [&](std::uint32_t first, std::uint32_t end) {
      return costs.load({first, end, 0}).raw_bytes();
    };
    added_before_.push_back(0.0);
    for (std::uint32_t unit = 0; unit < costs.units(); ++unit) {
      alone_.push_back(peak(unit, unit + 1));
      const std::uint32_t first = unit == 0 ? 0 : (unit - 1) / window * window;
      const double added = unit == 0 ? 0.0 : peak(first, unit + 1) - peak(first, unit);
      added_before_.push_back(added_before_.back() + added);
    }
  }

  double of(std::uint32_t first, std::uint32_t end) const {
    return alone_[first] + (added_before_[end] - added_before_[first + 1]);
  }

 private:
  std::vector<double> alone_;
  std::vector<double> added_before_;  ///< Running, of the units before.
};

}  // namespace spillway::partition
