#pragma once

#include <optional>
#include <vector>

#include "segment_goal.h"

namespace spillway::planner {

/// Cuts before each stage and behind the last one, and what the worst of them costs.
struct BottleneckCuts {
  std::vector<std::uint32_t> cuts;
  double cost = 0.0;
};

/// The cuts whose worst segment costs least, no stage empty; nothing where every way is impossible.
/// Halves the range of costs, and moves its ends to costs that segments really have, so that it
/// ends with the exact one after some forty probes. Probes fill from the left where that is exact
/// or already decides, and else keep the reachable cuts.
std::optional<BottleneckCuts> least_bottleneck(const SegmentGoal& goal, const CutRange& range);

/// Cost of the worst segment of these cuts; infinite where one is impossible.
double bottleneck_of(const SegmentGoal& goal, const CutRange& range,
                     const std::vector<std::uint32_t>& cuts);

}  // namespace spillway::planner
