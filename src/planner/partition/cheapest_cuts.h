#pragma once

#include <optional>
#include <vector>

#include "segment_goal.h"
#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::planner {

/// Units between where a border is and where it goes.
double moved_bytes(const SegmentCosts& costs, std::uint32_t one, std::uint32_t other);

/// The cuts that move the fewest bytes among those with no stage above a threshold: bytes over each
/// border add up, so a table by border and cut finds them. For each cut it looks at the segments
/// that surely keep to the threshold through the least of a sliding window, and one by one only at
/// those between both bounds of their costs: O(units * stages) where borders cost nothing, however
/// far the threshold is.
class CheapestCuts {
 public:
  CheapestCuts(const SegmentCosts& costs, const Cuts& now)
      : costs_(costs), now_(now), goal_(costs), range_(whole(costs)) {}

  /// Nothing where all cuts have a stage above `at`.
  std::optional<Cuts> run(double at) const;

 private:
  /// Costs for each cut behind a stage, from `first` on.
  struct Column {
    std::uint32_t first = 0;
    std::vector<double> bytes;  ///< Moved over borders up to here; infinite where none lead here.
    std::vector<std::uint32_t> begins;  ///< Of the stage.

    std::uint32_t end() const { return first + static_cast<std::uint32_t>(bytes.size()); }
    double at(std::uint32_t cut) const { return bytes[cut - first]; }
  };

  Column column(const Column& before, std::uint32_t stage, std::uint32_t from, std::uint32_t to,
                double at) const;

  const SegmentCosts& costs_;
  const Cuts& now_;
  const TimeGoal goal_;
  const CutRange range_;
};

}  // namespace spillway::planner
