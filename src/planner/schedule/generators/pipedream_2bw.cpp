#include "action_list_building.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static std::optional<std::string> fault_of_pipedream_2bw(const ScheduleRequest& request) {
  const std::uint32_t batch = request.ranks;
  if (request.micro_batches % batch == 0) return std::nullopt;
  return message("pipedream-2bw updates every {} micro-batches, and {} is no multiple (use {})",
                 batch, request.micro_batches, (request.micro_batches / batch + 1) * batch);
}

static Schedule make_pipedream_2bw(const ScheduleRequest& request) {
  // With fewer between two updates, two versions of the weights are not enough.
  const std::uint32_t batch = request.ranks;
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  schedule.weight_rule = WeightRule::kPrevious;
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    for (const Action& action :
         one_forward_one_backward(stage, request.micro_batches, request.ranks - stage, backward)) {
      schedule.ranks[stage].push_back(action);
      // No flush: the forwards of the next batch are under way already.
      if (action.kind == ActionKind::kBackward && (action.micro_batch + 1) % batch == 0)
        schedule.ranks[stage].push_back(step(stage, action.micro_batch));
    }
  return schedule;
}

extern const ScheduleGenerator kPipedream2bw{
    "pipedream-2bw",
    "1F1B without a flush: two versions of the weights, one update of delay",
    "Narayanan et al., Memory-efficient pipeline-parallel DNN training, ICML 2021, arXiv "
    "2006.09503",
    make_pipedream_2bw,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true},
    fault_of_pipedream_2bw};

}  // namespace spillway::planner_schedule
