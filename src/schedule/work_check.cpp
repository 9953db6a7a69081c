#include "work_check.h"

#include "spillway/base/error.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway::schedule {
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

}  // namespace spillway::schedule
