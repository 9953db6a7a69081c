#pragma once

#include <utility>

#include "segment_goal.h"

namespace spillway::planner {

/// A cost as published partitioners count it. `least_bottleneck` finds the least for those that do
/// not fall when a segment grows, and cuts that may be worse for others; `balanced_by_table`, which
/// looks at every segment that costs no more than these, finds the least for any.
template <typename CostOf>
class RawGoal : public SegmentGoal {
 public:
  explicit RawGoal(CostOf cost_of) : cost_of_(std::move(cost_of)) {}

  double cost(Segment segment, Borders /*borders*/) const override { return cost_of_(segment); }
  bool is_monotone() const override { return true; }

 private:
  const CostOf cost_of_;
};

}  // namespace spillway::planner
