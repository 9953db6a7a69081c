#include "generator_families.h"
#include "spillway/base/error.h"

namespace spillway::planner_schedule {

static std::optional<std::string> fault_of_gems_mast(const ScheduleRequest& request) {
  if (request.replicas != 0 && request.replicas != 2)
    return message("gems-mast has 2 replicas, not {} (use gems-master)", request.replicas);
  return fault_of_gems(request, 2, "gems-mast");
}

static Schedule make_gems_mast(const ScheduleRequest& request) {
  // The second one begins on the rank where the backward of the first one begins to give memory
  // back.
  return gems_chain(request, 2, GemsDirection::kInTurns);
}

extern const ScheduleGenerator kGemsMast{
    "gems-mast",
    "a second copy in reverse order starts in the memory that the first gives back",
    "Jain et al., GEMS, SC 2020; order read in OSU-Nowlab/MPI4DL",
    make_gems_mast,
    StagesPerRank::kOne,
    {.copies = 2, .is_whole = true, .alternation = Alternation::kMeet, .passes = 2},
    fault_of_gems_mast};

}  // namespace spillway::planner_schedule
