#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_breadth_first(const ScheduleRequest& request) {
  const std::uint32_t stages = request.ranks * request.stages_per_rank;
  const std::uint32_t last = request.micro_batches - 1;
  Schedule schedule =
      one_replica(request.ranks, request.micro_batches, round_placement(request.ranks, stages));
  // A message has the time of all other micro-batches on the stage to arrive, and a stage's
  // gradients are complete at once, so its sum runs beside the stages before it. All stashes are
  // the price.
  for (std::uint32_t stage = 0; stage < stages; ++stage)
    for (std::uint32_t i = 0; i <= last; ++i)
      schedule.ranks[stage % request.ranks].push_back(forward(stage, i));
  for (std::uint32_t stage = stages; stage-- > 0;)
    for (std::uint32_t i = 0; i <= last; ++i)
      schedule.ranks[stage % request.ranks].push_back(backward(stage, last - i));
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kBreadthFirst{
    "breadth-first",
    "all micro-batches through one stage of a rank before its next one",
    "Lamy-Poirier, Breadth-first pipeline parallelism, MLSys 2023, arXiv 2211.05953",
    make_breadth_first,
    StagesPerRank::kAsRequested,
    {.copies = 1, .is_whole = true}};

}  // namespace spillway::planner_schedule
