#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_pipedream(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    for (const Action& action :
         one_forward_one_backward(stage, request.micro_batches, request.ranks - stage, backward)) {
      schedule.ranks[stage].push_back(action);
      // An update for each micro-batch, at once. Those in flight go on with the weights of their
      // forward, so a rank holds as many versions as micro-batches.
      if (action.kind == ActionKind::kBackward)
        schedule.ranks[stage].push_back(step(stage, action.micro_batch));
    }
  return schedule;
}

extern const ScheduleGenerator kPipedream{
    "pipedream",
    "1F1B without a flush: an update per micro-batch, old weights kept meanwhile",
    "Narayanan et al., PipeDream, SOSP 2019, arXiv 1806.03377",
    make_pipedream,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true}};

}  // namespace spillway::planner_schedule
