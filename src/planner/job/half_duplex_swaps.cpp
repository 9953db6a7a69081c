#include "half_duplex_swaps.h"

#include <cstdint>

namespace spillway::planner {
namespace {

bool turns_back_with_stashes(const std::vector<Action>& list) {
  std::int64_t held = 0;
  bool is_behind_backward = false;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward) {
      if (is_behind_backward && held > 0) return true;
      is_behind_backward = false;
      ++held;
    } else if (makes_input_gradient(action.kind)) {
      is_behind_backward = true;
      --held;
    }
  }
  return false;
}

}  // namespace

std::vector<bool> half_duplex_stages(const Schedule& compute) {
  std::vector<bool> by_stage(compute.stages, false);
  std::vector<bool> by_rank;
  for (const auto& list : compute.ranks) by_rank.push_back(!turns_back_with_stashes(list));
  for (std::uint32_t replica = 0; replica < compute.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < compute.stages; ++stage)
      if (by_rank[compute.rank_of(replica, stage)]) by_stage[stage] = true;
  return by_stage;
}

}  // namespace spillway::planner
