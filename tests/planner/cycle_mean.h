#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::planner {

/// From one state at the begin of a step to one at its end.
struct StepEdge {
  std::uint32_t from;
  std::uint32_t to;
  std::uint32_t cost;
};

/// Least mean cost per step of walking on for ever, from state 0 on.
double least_cycle_mean(const std::vector<StepEdge>& edges, std::size_t state_count);

}  // namespace spillway::planner
