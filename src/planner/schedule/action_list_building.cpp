#include "action_list_building.h"

#include <algorithm>

#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {

Schedule one_replica(std::uint32_t ranks, std::uint32_t micro_batches,
                     std::vector<std::uint32_t> placement) {
  Schedule schedule;
  schedule.stages = static_cast<std::uint32_t>(placement.size());
  schedule.micro_batches = micro_batches;
  schedule.placement.push_back(std::move(placement));
  schedule.ranks.resize(ranks);
  return schedule;
}

std::vector<Action> one_forward_one_backward(std::uint32_t stage, std::uint32_t micro_batches,
                                             std::uint32_t warm_up,
                                             Action (*make_backward)(std::uint32_t, std::uint32_t,
                                                                     std::uint32_t)) {
  std::vector<Action> actions;
  std::uint32_t forwards = 0;
  for (; forwards < std::min(warm_up, micro_batches); ++forwards)
    actions.push_back(forward(stage, forwards));
  for (std::uint32_t backwards = 0; backwards < micro_batches; ++backwards) {
    actions.push_back(make_backward(stage, backwards, 0));
    if (forwards < micro_batches) actions.push_back(forward(stage, forwards++));
  }
  return actions;
}

void end_with_steps(Schedule& schedule) {
  const WeightCopies copies(schedule);
  for (std::uint32_t stage = schedule.stages; stage-- > 0;)
    for (const std::uint32_t rank : copies.holders(stage))
      schedule.ranks[rank].push_back(step(stage));
}

}  // namespace spillway::planner
