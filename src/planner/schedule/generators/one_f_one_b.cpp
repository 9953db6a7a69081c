#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_one_f_one_b(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  // A forward for each rank from this one to the last: then the first gradient comes back just as
  // these are done. More of them would be held without being faster.
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    schedule.ranks[stage] =
        one_forward_one_backward(stage, request.micro_batches, request.ranks - stage, backward);
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kOneFOneB{
    "1f1b",
    "one forward, one backward; stage s holds ranks - s micro-batches",
    "Narayanan et al., PipeDream, SOSP 2019, with a flush: Fan et al., DAPPLE, PPoPP 2021, arXiv "
    "2007.01045",
    make_one_f_one_b,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true}};

}  // namespace spillway::planner_schedule
