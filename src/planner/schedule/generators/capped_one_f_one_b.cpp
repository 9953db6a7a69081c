#include <algorithm>

#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_capped_one_f_one_b(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  std::vector<std::uint32_t> most_held;
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    // More than 1F1B holds would not be faster.
    most_held.push_back(std::min(request.slots, request.ranks - stage));
  // One in turn would make backwards wait for forwards that have no slot before; so no fixed turn.
  order_greedily(schedule, most_held);
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kCappedOneFOneB{
    "1f1b-capped",
    "1F1B with at most `slots` micro-batches in flight on any rank",
    "ours, after the memory bound of Fan et al., DAPPLE, PPoPP 2021, arXiv 2007.01045",
    make_capped_one_f_one_b,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true, .has_slots = true}};

}  // namespace spillway::planner_schedule
