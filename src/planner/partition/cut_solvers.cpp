#include "spillway/planner/partition/cut_solvers.h"

#include "balanced_cuts.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

std::optional<SolvedCuts> solved(std::optional<BottleneckCuts> found) {
  if (!found) return std::nullopt;
  return SolvedCuts{std::move(found->cuts), found->cost, true};
}

std::optional<SolvedCuts> balanced(const SegmentGoal& goal, const SegmentCosts& costs) {
  auto found = balanced_cuts(goal, whole(costs));
  if (!found) return std::nullopt;
  return SolvedCuts{std::move(found->best.cuts), found->best.cost, found->is_exact};
}

}  // namespace

std::optional<SolvedCuts> least_time_cuts(const SegmentCosts& costs,
                                          MemoryReduction memory_reduction) {
  return solved(least_bottleneck(TimeGoal(costs, memory_reduction), whole(costs)));
}

std::optional<SolvedCuts> least_memory_cuts(const SegmentCosts& costs, double seconds,
                                            MemoryReduction memory_reduction) {
  return solved(least_bottleneck(MemoryGoal(costs, seconds, memory_reduction), whole(costs)));
}

std::optional<SolvedCuts> balanced_time_cuts(const SegmentCosts& costs,
                                             MemoryReduction memory_reduction) {
  return balanced(TimeGoal(costs, memory_reduction), costs);
}

std::optional<SolvedCuts> balanced_memory_cuts(const SegmentCosts& costs, double seconds,
                                               MemoryReduction memory_reduction) {
  return balanced(MemoryGoal(costs, seconds, memory_reduction), costs);
}

void refuse_cuts(const SegmentCosts& costs, MemoryReduction memory_reduction) {
  // What the devices would have to hold: the same without their limits.
  PartitionProblem endless = costs.problem();
  for (StageDevice& device : endless.devices) device.memory = kNoLimit;
  constexpr double kLongEnough = 1e12;
  const auto least =
      least_memory_cuts(SegmentCosts(std::move(endless)), kLongEnough, memory_reduction);
  throw PlanError(
      "no cuts of {} layers for {} stages fit into their devices, whatever is {}recomputed: the "
      "fullest one takes {} at least; use more devices or more memory{}",
      costs.problem().chain.layers.size(), costs.stages(),
      memory_reduction == MemoryReduction::kSwapAndRecompute ? "swapped and " : "",
      least ? to_string(as_bytes(least->worst)) : "more than there is",
      can_swap(costs.problem()) ? ", or fewer micro-batches in flight"
                                : ", fewer micro-batches in flight, or a link to swap to");
}

}  // namespace spillway::planner
