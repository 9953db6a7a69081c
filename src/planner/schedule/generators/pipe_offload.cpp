#include "generator_families.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

// The order alone. What leaves for the host, half of a rank's stages (PO-H) or all (PO-F), is added
// by `with_offloaded_stages`.
static Schedule make_pipe_offload(const ScheduleRequest& request) {
  return repeated_blocks(request, (request.ranks + 1) / 2, Repetition::kEvenly);
}

extern const ScheduleGenerator kPipeOffload{
    "pipeoffload",
    "stages of a rank in turn: long-lived stashes are few at a time, for swapping",
    "Wan et al., PipeOffload, ICML 2025, arXiv 2503.01328, sections 2 and 3.2; that no two actions "
    "meet is our reading of its minor modifications",
    make_pipe_offload,
    StagesPerRank::kAsRequested,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
