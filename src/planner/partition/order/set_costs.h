#pragma once

#include <vector>

#include "order/downsets.h"
#include "order/unit_costs.h"

namespace spillway::planner {

/// Time of what lies between two downsets when one stage runs it, after the best swaps and
/// recomputation: the figure that `SegmentCosts` has where an order passes through both. Here any
/// two will do, and each question takes time by the number of units in between. Where hosts share
/// links it would need all stages at once; not for such problems.
class SetCosts {
 public:
  /// Keeps references.
  SetCosts(const UnitCosts& units, const Downsets& sets);

  std::uint32_t stages() const { return static_cast<std::uint32_t>(units_.stages().size()); }
  double slowdown(std::uint32_t stage) const { return units_.stages()[stage].slowdown; }
  /// Forward and backward of a downset, on a device of slowdown 1.
  double layer_seconds(std::uint32_t set) const { return sums_[set].seconds; }
  /// Least seconds per micro-batch of `large` without `small`, which it holds, within the stage's
  /// device; infinite where nothing helps.
  double least_seconds(std::uint32_t small, std::uint32_t large, std::uint32_t stage) const;

 private:
  double ways(std::uint32_t set) const;
  void add_memory(SegmentLoad& load, std::uint32_t small, std::uint32_t large,
                  const StageConstants& stage, const UnitCosts::Units& between) const;
  double kept_bytes(std::uint32_t small, const UnitCosts::Units& between) const;

  const UnitCosts& units_;
  const Downsets& sets_;
  std::vector<UnitLoad> sums_;  ///< By downset.
};

}  // namespace spillway::planner
