#include "action_list_building.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner {

static Schedule make_pipedream_2bw(const ScheduleRequest& request) {
  const std::uint32_t batch = request.update_every == 0 ? request.ranks : request.update_every;
  if (batch < request.ranks)
    throw ConfigError(
        "pipedream-2bw needs updates every {} micro-batches or more, as many as ranks, not every "
        "{} (else two versions of the weights are not enough)",
        request.ranks, batch);
  if (request.micro_batches % batch != 0)
    throw ConfigError(
        "pipedream-2bw updates every {} micro-batches, and {} is no multiple (use {})", batch,
        request.micro_batches, (request.micro_batches / batch + 1) * batch);
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  schedule.weight_rule = WeightRule::kPrevious;
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    for (const Action& action :
         one_forward_one_backward(stage, request.micro_batches, request.ranks - stage, backward)) {
      schedule.ranks[stage].push_back(action);
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
    {.copies = 1, .is_whole = true}};

}  // namespace spillway::planner
