#include "spillway/planner/schedule/memory_check.h"

#include <cmath>

#include "parameter_places.h"
#include "spillway/base/error.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {

using schedule::ScheduleFault;

std::optional<ScheduleFault> memory_fault(const Schedule& schedule, const ScheduleLimits& limits) {
  check_shape(schedule);
  const WeightCopies copies(schedule);
  const std::size_t ranks = schedule.ranks.size();
  if (!limits.memory.empty() && limits.memory.size() != 1 && limits.memory.size() != ranks)
    throw ConfigError("there are memory limits of {} ranks for {} (give one, or one for each)",
                      limits.memory.size(), ranks);
  if (!limits.memory.empty() && limits.stages.size() != schedule.stages)
    throw ConfigError("there are sizes of {} stages for the {} of the schedule",
                      limits.stages.size(), schedule.stages);
  StashWalk walk(schedule, limits.shares);
  std::vector<double> bytes(ranks, 0.0);
  if (!limits.memory.empty()) bytes = ParameterPlaces(schedule, copies, limits.stages).bytes;
  std::vector<bool> is_resident = resident_at_start(schedule, copies);
  const double stages_per_rank = static_cast<double>(schedule.stages) / static_cast<double>(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    double stashes = 0.0;
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const StashEffect effect = walk.apply(action);
      stashes += effect.taken;
      constexpr double kRounding = 1e-9;
      if (limits.in_flight && stashes > *limits.in_flight * stages_per_rank + kRounding)
        return ScheduleFault{rank, i, action,
                             message("it is the first to hold {} micro-batches, {} are allowed",
                                     stashes / stages_per_rank, *limits.in_flight)};
      stashes -= effect.returned;
      if (limits.memory.empty()) continue;
      const Bytes limit = limits.memory[limits.memory.size() == 1 ? 0 : rank];
      const StageCosts& stage = limits.stages[action.stage];
      bytes[rank] += effect.taken * static_cast<double>(stage.stash.count());
      const int moved = move_weights(action, copies.at(rank, action.stage), is_resident);
      if (moved > 0) bytes[rank] += static_cast<double>(stage.weights.count());
      if (bytes[rank] > static_cast<double>(limit.count()) + 0.5)
        return ScheduleFault{
            rank, i, action,
            message("it is the first to need {}, the rank has {}",
                    Bytes(static_cast<std::uint64_t>(std::llround(bytes[rank]))), limit)};
      bytes[rank] -= effect.returned * static_cast<double>(stage.stash.count());
      if (moved < 0) bytes[rank] -= static_cast<double>(stage.weights.count());
    }
  }
  return std::nullopt;
}

}  // namespace spillway::planner
