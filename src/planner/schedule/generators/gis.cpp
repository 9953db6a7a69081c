#include "generator_families.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_gis(const ScheduleRequest& request) {
  // Groups of all ranks, as interleaved has them. Split backwards let the gradients start earlier.
  return repeated_blocks(request, request.ranks, Repetition::kInGroups);
}

extern const ScheduleGenerator kGis{
    "gis",
    "interleaved with split backwards that begin earlier: its time or less, memory of 1F1B",
    "Wan et al., PipeOffload, ICML 2025, arXiv 2503.01328, section 3.1",
    make_gis,
    StagesPerRank::kAsRequested,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
