#include "work_check.h"

#include <cmath>

#include "parameter_places.h"
#include "spillway/base/error.h"
#include "stash_walk.h"

namespace spillway::planner {
namespace {

using Fault = std::optional<ScheduleFault>;

bool starts_pair(const std::vector<Action>& list, std::size_t i) {
  return list[i].kind == ActionKind::kForward && i + 1 < list.size() &&
         list[i + 1].kind == ActionKind::kBackward;
}

/// Weights that leave and come back in turn, and are there when they are used.
const char* weights_problem(const Action& action, std::uint32_t copy,
                            std::vector<bool>& is_resident) {
  const bool uses = is_compute(action.kind) || action.kind == ActionKind::kSendWeights;
  if (uses && !is_resident[copy]) return "its weights are away";
  const bool moves = move_weights(action, copy, is_resident) != 0;
  if (action.kind == ActionKind::kSwapOutWeights && !moves) return "its weights are away already";
  if (action.kind == ActionKind::kSwapInWeights && !moves) return "its weights are there already";
  return nullptr;
}

Fault missing_work(const Schedule& schedule, const StashWalk& walk) {
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      for (std::uint32_t i = 0; i < schedule.micro_batches; ++i) {
        Action action{ActionKind::kForward, stage, i, replica};
        if (walk.is_done(action)) continue;
        const std::uint32_t rank = schedule.rank_of(replica, stage);
        const char* reason = "it is missing";
        if (walk.is_started(action)) {
          action.kind = ActionKind::kBackward;
          reason = "it, or the weight gradient of its input gradient, is missing";
        }
        return ScheduleFault{rank, schedule.ranks[rank].size(), action, reason};
      }
  return std::nullopt;
}

}  // namespace

Fault work_fault(const Schedule& schedule, const WeightCopies& copies) {
  StashWalk walk(schedule, {});
  std::vector<bool> is_resident = resident_at_start(schedule, copies);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      const auto fault = [&](const char* reason) { return ScheduleFault{rank, i, action, reason}; };
      if (const char* problem = walk.apply(action).problem) return fault(problem);
      if (action.overlaps_next && !starts_pair(schedule.ranks[rank], i))
        return fault("the backward that runs as one with it does not follow");
      const std::uint32_t copy = copies.at(rank, action.stage);
      if (const char* problem = weights_problem(action, copy, is_resident)) return fault(problem);
      if (action.kind == ActionKind::kStep && action.micro_batch != kNoMicroBatch &&
          schedule.rank_of(0, action.stage) == rank &&
          !walk.is_done({ActionKind::kForward, action.stage, action.micro_batch}))
        return fault("it comes before the backward of its micro-batch");
    }
  return missing_work(schedule, walk);
}

Fault memory_fault(const Schedule& schedule, const WeightCopies& copies,
                   const ScheduleLimits& limits) {
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
