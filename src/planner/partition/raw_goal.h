#pragma once

#include <utility>

#include "segment_goal.h"

namespace spillway::planner {

/// Any cost that does not fall when a segment grows, as published partitioners count it.
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
