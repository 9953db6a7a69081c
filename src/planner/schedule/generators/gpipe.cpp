#include "action_list_building.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_gpipe(const ScheduleRequest& request) {
  const std::uint32_t last = request.micro_batches - 1;
  Schedule schedule = one_replica(request.ranks, request.micro_batches,
                                  round_placement(request.ranks, request.ranks));
  for (std::uint32_t stage = 0; stage < request.ranks; ++stage) {
    auto& list = schedule.ranks[stage];
    for (std::uint32_t i = 0; i <= last; ++i) list.push_back(forward(stage, i));
    // As torchgpipe has it: the backward begins where the forward ended, with the micro-batch that
    // it need not recompute.
    for (std::uint32_t i = 0; i <= last; ++i) list.push_back(backward(stage, last - i));
  }
  end_with_steps(schedule);
  return schedule;
}

extern const ScheduleGenerator kGpipe{
    "gpipe",
    "all forwards, then all backwards, the last micro-batch first",
    "Huang et al., GPipe, NeurIPS 2019, arXiv 1811.06965; order as in kakaobrain/torchgpipe",
    make_gpipe,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true, .alternation = Alternation::kApart}};

}  // namespace spillway::planner_schedule
