#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_zb_h1(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    // As early as in 1F1B. The gradient goes on without waiting for the weights' one, which fills
    // the wait at the end instead.
    schedule.ranks[stage] = one_forward_one_backward(stage, request.micro_batches,
                                                     request.ranks - stage, input_gradient);
  // What the first rank of 1F1B holds, on every rank: later ranks keep the weight gradients that
  // they have not done.
  fill_with_weight_gradients(schedule, /*most_held=*/request.ranks);
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kZbH1{
    "zb-h1",
    "1F1B whose weight gradients fill a third of the bubble; memory of 1F1B",
    "Qi et al., Zero bubble pipeline parallelism, ICLR 2024, arXiv 2401.10241",
    make_zb_h1,
    StagesPerRank::kOne,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
