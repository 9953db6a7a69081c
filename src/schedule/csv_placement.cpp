#include <algorithm>

#include "csv_place.h"
#include "placed_stages.h"
#include "spillway/base/figure_text.h"

namespace spillway::schedule {
namespace {

constexpr std::uint32_t kNowhere = static_cast<std::uint32_t>(-1);

/// The counts that the forwards reach. Each of them must be there, so tables over all of them are
/// not larger than the text.
void count_forwards(Schedule& schedule, const std::vector<PlacedActions>& ranks) {
  std::uint64_t forwards = 0;
  std::uint32_t replicas = 0;
  for (const PlacedActions& rank : ranks)
    for (const Action& action : rank.actions) {
      if (action.kind != ActionKind::kForward) continue;
      ++forwards;
      schedule.stages = std::max(schedule.stages, action.stage + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
      replicas = std::max(replicas, action.replica + 1);
    }
  const std::string_view name = schedule.name;
  if (forwards == 0) throw ConfigError("{} holds no forward, like 0F0", name);
  // None of the three counts is above 2^24.
  const std::uint64_t passes = std::uint64_t{replicas} * schedule.micro_batches;
  if (passes > forwards || passes * schedule.stages > forwards)
    throw ConfigError("{} holds {}, too few for {}, {}, {}", name, counted(forwards, "forward"),
                      counted(schedule.stages, "stage"),
                      counted(schedule.micro_batches, "micro-batch"), counted(replicas, "replica"));
  schedule.placement.assign(replicas, std::vector<std::uint32_t>(schedule.stages, kNowhere));
}

void place_forwards(Schedule& schedule, const std::vector<PlacedActions>& ranks) {
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    for (std::size_t i = 0; i < ranks[rank].actions.size(); ++i) {
      const Action& action = ranks[rank].actions[i];
      if (action.kind != ActionKind::kForward) continue;
      std::uint32_t& at = schedule.placement[action.replica][action.stage];
      if (at != kNowhere && at != rank)
        fail_at(ranks[rank].places[i], "{} on rank {}, but its stage is on rank {} already", action,
                rank, at);
      at = rank;
    }
  for (std::size_t replica = 0; replica < schedule.placement.size(); ++replica)
    for (std::size_t stage = 0; stage < schedule.stages; ++stage)
      if (schedule.placement[replica][stage] == kNowhere)
        throw ConfigError("{}: replica {} has no forward of stage {}", schedule.name, replica,
                          stage);
}

}  // namespace

void complete_schedule(Schedule& schedule, std::vector<PlacedActions>& ranks) {
  count_forwards(schedule, ranks);
  place_forwards(schedule, ranks);
  PlacedStages placed(schedule);
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < ranks[rank].actions.size(); ++i) {
      const Action& action = ranks[rank].actions[i];
      const bool is_known =
          action.stage < schedule.stages && action.replica < schedule.replica_count() &&
          (action.micro_batch == kNoMicroBatch || action.micro_batch < schedule.micro_batches);
      if (!is_known) fail_at(ranks[rank].places[i], "{} has no forward", action);
      const bool is_here = needs_micro_batch(action.kind)
                               ? schedule.rank_of(action.replica, action.stage) == rank
                               : placed.holds(rank, action.stage);
      if (!is_here)
        fail_at(ranks[rank].places[i], "{} on rank {}, which has no forward of its stage", action,
                rank);
    }
    schedule.ranks.push_back(std::move(ranks[rank].actions));
  }
  if (schedule.untrained_stages > schedule.stages)
    throw ConfigError(
        "{}: untrained stages are {}, and there are {} (count those that lead the trained ones)",
        schedule.name, schedule.untrained_stages, schedule.stages);
  check_shape(schedule);
}

}  // namespace spillway::schedule
