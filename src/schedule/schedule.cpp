#include "spillway/schedule/schedule.h"

#include <algorithm>
#include <ostream>

#include "action_names.h"
#include "placed_stages.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::schedule {
namespace {

/// Tables over all cells (replica, stage, micro-batch) stay below some gigabytes.
constexpr std::uint64_t kMostCells = std::uint64_t{1} << 27;

const char* fault_of(const Schedule& schedule, PlacedStages& placed, std::uint32_t rank,
                     const Action& action) {
  if (action.replica >= schedule.replica_count()) return "there is no such replica";
  if (action.stage >= schedule.stages) return "there is no such stage";
  if (action.micro_batch != kNoMicroBatch && action.micro_batch >= schedule.micro_batches)
    return "there is no such micro-batch";
  const bool may_name_one = needs_micro_batch(action.kind) || action.kind == ActionKind::kStep;
  if (needs_micro_batch(action.kind) && action.micro_batch == kNoMicroBatch)
    return "it names no micro-batch";
  if (!may_name_one && action.micro_batch != kNoMicroBatch)
    return "it concerns a stage and no micro-batch";
  if (needs_micro_batch(action.kind) && schedule.rank_of(action.replica, action.stage) != rank)
    return "its stage is on another rank";
  if (!needs_micro_batch(action.kind) && !placed.holds(rank, action.stage))
    return "its stage is on another rank";
  return nullptr;
}

}  // namespace

bool is_model_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kWeightGradient ||
         makes_input_gradient(kind);
}

bool is_compute(ActionKind kind) {
  return is_model_compute(kind) || kind == ActionKind::kRecompute || kind == ActionKind::kStep;
}

bool makes_input_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward ||
         kind == ActionKind::kSendWeights || kind == ActionKind::kSendGradients;
}

bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveForward || kind == ActionKind::kReceiveBackward ||
         kind == ActionKind::kReceiveWeights || kind == ActionKind::kReceiveGradients;
}

bool needs_micro_batch(ActionKind kind) { return kind <= ActionKind::kRecompute; }

ActionKind counterpart(ActionKind kind) {
  switch (kind) {
    case ActionKind::kSendForward: return ActionKind::kReceiveForward;
    case ActionKind::kReceiveForward: return ActionKind::kSendForward;
    case ActionKind::kSendBackward: return ActionKind::kReceiveBackward;
    case ActionKind::kReceiveBackward: return ActionKind::kSendBackward;
    case ActionKind::kSendWeights: return ActionKind::kReceiveWeights;
    case ActionKind::kReceiveWeights: return ActionKind::kSendWeights;
    case ActionKind::kSendGradients: return ActionKind::kReceiveGradients;
    case ActionKind::kReceiveGradients: return ActionKind::kSendGradients;
    default: return kind;
  }
}

std::string to_string(const Action& action) {
  std::string text;
  if (action.replica != 0) text.append("r").append(std::to_string(action.replica)).append(":");
  text += std::to_string(action.stage);
  text += name_in(kActionNames, action.kind);
  if (action.micro_batch != kNoMicroBatch) text += std::to_string(action.micro_batch);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Action& action) {
  return out << to_string(action);
}

bool has_action(const Schedule& schedule, ActionKind kind) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Action& action) { return action.kind == kind; });
  });
}

void check_shape(const Schedule& schedule) {
  if (schedule.stages == 0 || schedule.micro_batches == 0 || schedule.placement.empty() ||
      schedule.ranks.empty())
    throw PlanError("a schedule needs ranks, stages, micro-batches and a placement");
  if (schedule.data_parallel == 0) throw PlanError("a schedule is of one pipeline at least, not 0");
  if (schedule.untrained_stages > schedule.stages)
    throw PlanError("untrained stages are {}, and there are {}", schedule.untrained_stages,
                    schedule.stages);
  if (schedule.all_micro_batches() > kMostCells / schedule.stages)
    throw PlanError("a schedule of {} stages and {} micro-batches is too large (use fewer)",
                    schedule.stages, schedule.all_micro_batches());
  for (std::size_t replica = 0; replica < schedule.placement.size(); ++replica) {
    const auto& ranks = schedule.placement[replica];
    if (ranks.size() != schedule.stages)
      throw PlanError("replica {} places {} of {}", replica, counted(ranks.size(), "stage"),
                      schedule.stages);
    for (std::size_t stage = 0; stage < ranks.size(); ++stage)
      if (ranks[stage] >= schedule.rank_count())
        throw PlanError("stage {} of replica {} is placed on rank {} of {}", stage, replica,
                        ranks[stage], schedule.rank_count());
  }
  PlacedStages placed(schedule);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const Action& action : schedule.ranks[rank])
      if (const char* fault = fault_of(schedule, placed, rank, action))
        throw PlanError("rank {}: {}: {}", rank, action, fault);
}

std::vector<std::uint32_t> round_placement(std::uint32_t ranks, std::uint32_t stages) {
  std::vector<std::uint32_t> placement(stages);
  for (std::uint32_t stage = 0; stage < stages; ++stage) placement[stage] = stage % ranks;
  return placement;
}

std::vector<std::uint32_t> folded_placement(std::uint32_t ranks) {
  std::vector<std::uint32_t> placement(std::size_t{2} * ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    placement[rank] = placement[2 * ranks - 1 - rank] = rank;
  return placement;
}

std::vector<std::uint32_t> reversed_placement(std::uint32_t ranks) {
  std::vector<std::uint32_t> placement(ranks);
  for (std::uint32_t stage = 0; stage < ranks; ++stage) placement[stage] = ranks - 1 - stage;
  return placement;
}

}  // namespace spillway::schedule
