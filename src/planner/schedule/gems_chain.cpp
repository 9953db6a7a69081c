#include "gems_chain.h"

#include "action_list_building.h"
#include "spillway/base/error.h"

namespace spillway::planner {

Schedule gems_chain(const ScheduleRequest& request, std::uint32_t replicas, GemsDirection direction,
                    std::string_view name) {
  if (request.micro_batches % replicas != 0)
    throw ConfigError(
        "{} shares its micro-batches among {} replicas, and {} is no multiple (use {})", name,
        replicas, request.micro_batches, (request.micro_batches / replicas + 1) * replicas);
  const std::uint32_t stages = request.ranks;
  Schedule schedule =
      one_replica(stages, request.micro_batches / replicas, round_placement(stages, stages));
  for (std::uint32_t replica = 1; replica < replicas; ++replica) {
    const bool is_inverted = direction == GemsDirection::kInTurns && replica % 2 == 1;
    schedule.placement.push_back(is_inverted ? reversed_placement(stages)
                                             : round_placement(stages, stages));
  }
  for (std::uint32_t replica = 0; replica < replicas; ++replica)
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      auto& list = schedule.ranks[schedule.rank_of(replica, stage)];
      for (std::uint32_t i = 0; i < schedule.micro_batches; ++i)
        list.push_back(forward(stage, i, replica));
      for (std::uint32_t i = 0; i < schedule.micro_batches; ++i)
        list.push_back(backward(stage, i, replica));
    }
  end_with_steps(schedule);
  return schedule;
}

}  // namespace spillway::planner
