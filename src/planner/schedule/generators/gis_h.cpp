#include "generator_families.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::planner_schedule {

static Schedule make_gis_h(const ScheduleRequest& request) {
  // The smallest group that `repeated_blocks` allows, so that a stash lives for the shortest time.
  return repeated_blocks(request, (request.ranks + 1) / 2, Repetition::kInGroups);
}

extern const ScheduleGenerator kGisH{
    "gis-h",
    "interleaved in groups of half the ranks: half of its memory, somewhat more bubble",
    "Wan et al., PipeOffload, ICML 2025, arXiv 2503.01328, section 3.2",
    make_gis_h,
    StagesPerRank::kAsRequested,
    {.copies = 1}};

}  // namespace spillway::planner_schedule
