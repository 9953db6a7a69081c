#pragma once

#include <cstdint>
#include <functional>

#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {

/// The ticks at which a rank works on micro-batch 0, each action one tick long: forward down the
/// ranks, forward back, backward of the way back, backward of the way down. Micro-batch i follows
/// 6·i ticks later, so no two of them may be equal modulo 6; two more are left for its weight
/// gradients.
struct VPattern {
  std::uint32_t forward_down = 0;
  std::uint32_t forward_back = 0;
  std::uint32_t backward_back = 0;
  std::uint32_t backward_down = 0;
};

/// Forwards and input gradients in the order of the repeated pattern, weight gradients where a rank
/// would wait, as long as none holds more than the repeated pattern does.
Schedule repeated_v(const ScheduleRequest& request,
                    const std::function<VPattern(std::uint32_t rank)>& pattern_of);

}  // namespace spillway::planner
