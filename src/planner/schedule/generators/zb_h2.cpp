#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_zb_h2(const ScheduleRequest& request) {
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage)
    // A gradient comes back to a stage after as many ticks as there are stages from it to the end
    // and back. So many forwards fill the whole wait.
    schedule.ranks[stage] = one_forward_one_backward(
        stage, request.micro_batches, 2 * (request.ranks - stage) - 1, input_gradient);
  fill_with_weight_gradients(schedule, /*most_held=*/2 * request.ranks - 1);
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kZbH2{
    "zb-h2",
    "no bubble between updates that need no flush; twice the memory of 1F1B",
    "Qi et al., Zero bubble pipeline parallelism, ICLR 2024, arXiv 2401.10241",
    make_zb_h2,
    StagesPerRank::kOne,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
