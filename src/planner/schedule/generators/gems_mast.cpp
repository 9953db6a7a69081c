#include "gems_chain.h"
#include "spillway/base/error.h"

namespace spillway::planner {

static Schedule make_gems_mast(const ScheduleRequest& request) {
  if (request.replicas != 0 && request.replicas != 2)
    throw ConfigError("gems-mast has 2 replicas, not {} (use gems-master)", request.replicas);
  return gems_chain(request, 2, GemsDirection::kInTurns, "gems-mast");
}

extern const ScheduleGenerator kGemsMast{
    "gems-mast",
    "a second copy in reverse order starts in the memory that the first gives back",
    "Jain et al., GEMS, SC 2020; order read in OSU-Nowlab/MPI4DL",
    make_gems_mast,
    StagesPerRank::kOne,
    {.copies = 2, .is_whole = true, .alternation = Alternation::kMeet, .passes = 2}};

}  // namespace spillway::planner
