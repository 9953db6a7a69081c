#include "parameter_places.h"

#include "version_count.h"

namespace spillway::planner {

ParameterPlaces::ParameterPlaces(const Schedule& schedule, const WeightCopies& copies,
                                 std::span<const StageCosts> stages)
    : is_resident(resident_at_start(schedule, copies)),
      bytes(schedule.ranks.size(), 0.0),
      gradients(schedule.ranks.size(), 0.0),
      optimizer_states(schedule.ranks.size(), 0.0) {
  std::vector<bool> is_stepped(copies.size(), false);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const Action& action : schedule.ranks[rank])
      if (action.kind == ActionKind::kStep) is_stepped[copies.at(rank, action.stage)] = true;
  const VersionCount versions = count_versions(schedule, copies);
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy) {
    const StageCosts& stage = stages[copies[copy].stage];
    const std::uint32_t held = versions.peaks[copy] - (is_resident[copy] ? 0 : 1);
    const std::uint32_t rank = copies[copy].rank;
    bytes[rank] += count_of(stage.weights) * held;
    gradients[rank] += count_of(stage.gradients);
    if (is_stepped[copy]) optimizer_states[rank] += count_of(stage.optimizer_state);
  }
  for (std::uint32_t rank = 0; rank < bytes.size(); ++rank)
    bytes[rank] += gradients[rank] + optimizer_states[rank];
}

}  // namespace spillway::planner
