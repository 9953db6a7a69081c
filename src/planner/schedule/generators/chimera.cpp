#include "action_list_building.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static std::optional<std::string> fault_of_chimera(const ScheduleRequest& request) {
  // The middle one of an odd number of ranks would hold the same stage twice, and be alone with it.
  if (request.ranks % 2 != 0)
    return message("chimera needs an even number of ranks, not {} (use {}, or 1f1b)", request.ranks,
                   request.ranks + 1);
  // All replicas of a schedule have the same number of micro-batches.
  if (request.micro_batches % 2 != 0)
    return message("chimera needs an even number of micro-batches, not {} (use {}, or 1f1b)",
                   request.micro_batches, request.micro_batches + 1);
  return std::nullopt;
}

static Schedule make_chimera(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches / 2,
                                  round_placement(request.ranks, request.ranks));
  schedule.placement.push_back(reversed_placement(request.ranks));
  // Without a limit, a rank that waits for backwards would run forwards ahead, down to the last
  // one. With this one it holds no more than 1F1B.
  order_greedily(schedule, std::vector<std::uint32_t>(request.ranks, request.ranks));
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kChimera{
    "chimera",
    "two pipelines in opposite directions, each with a copy of the weights",
    "Li and Hoefler, Chimera, SC 2021, arXiv 2107.06925; the order is found by a greedy rule",
    make_chimera,
    StagesPerRank::kOne,
    {.copies = 2, .is_whole = true},
    fault_of_chimera};

}  // namespace spillway::planner_schedule
