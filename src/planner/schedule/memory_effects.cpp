#include "spillway/planner/schedule/memory_effects.h"

#include "parameter_places.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {
namespace {

/// Copies of the parameters as the action lists move them.
class WeightWalk {
 public:
  WeightWalk(const WeightCopies& copies, const ParameterPlaces& places)
      : copies_(copies), is_resident_(places.is_resident), is_changed_(copies.size(), false) {}

  MemoryEffect apply(std::uint32_t rank, const Action& action, const StageCosts& stage) {
    const std::uint32_t copy = copies_.at(rank, action.stage);
    const double bytes = count_of(stage.weights);
    const double transients = count_of(stage.update_peak);
    switch (action.kind) {
      case ActionKind::kStep:
        is_changed_[copy] = true;
        return {.at_start = transients, .at_end = -transients};
      case ActionKind::kReceiveWeights: {
        const double taken = is_resident_[copy] ? 0.0 : bytes;
        is_resident_[copy] = true;
        return {.at_start = taken};
      }
      case ActionKind::kSwapInWeights:
        is_resident_[copy] = true;
        is_changed_[copy] = false;
        return {.at_start = bytes};
      default: {
        const bool is_copied = is_changed_[copy];
        is_resident_[copy] = is_changed_[copy] = false;
        return is_copied ? MemoryEffect{.at_end = -bytes} : MemoryEffect{.at_start = -bytes};
      }
    }
  }

 private:
  const WeightCopies& copies_;
  std::vector<bool> is_resident_;
  std::vector<bool> is_changed_;
};

bool concerns_weights(ActionKind kind) {
  return kind == ActionKind::kStep || kind == ActionKind::kReceiveWeights ||
         kind == ActionKind::kSwapInWeights || kind == ActionKind::kSwapOutWeights;
}

bool waits_for_room(ActionKind kind) {
  return kind == ActionKind::kSwapIn || (is_compute(kind) && kind != ActionKind::kStep);
}

}  // namespace

MemoryEffects memory_effects(const Schedule& schedule, const ScheduleCosts& costs) {
  check_shape(schedule);
  SPILLWAY_ASSERT(costs.stages.size() == schedule.stages);
  const WeightCopies copies(schedule);
  const ParameterPlaces places(schedule, copies, costs.stages);
  WeightWalk weights(copies, places);
  StashWalk stashes(schedule, costs.shares);
  MemoryEffects effects;
  effects.at_begin = places.bytes;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    auto& of_rank = effects.actions.emplace_back();
    for (const Action& action : schedule.ranks[rank]) {
      const StageCosts& stage = costs.stages[action.stage];
      if (concerns_weights(action.kind)) {
        of_rank.push_back(weights.apply(rank, action, stage));
        continue;
      }
      const StashEffect stash = stashes.apply(action);
      if (stash.problem) throw PlanError("rank {}: {}: {}", rank, action, stash.problem);
      of_rank.push_back({stash.taken * count_of(stage.stash),
                         -stash.returned * count_of(stage.stash), waits_for_room(action.kind)});
    }
  }
  return effects;
}

}  // namespace spillway::planner
