#include "gems_chain.h"

namespace spillway::planner {

static Schedule make_gems_basic(const ScheduleRequest& request) {
  return gems_chain(request, request.replicas == 0 ? 1 : request.replicas, GemsDirection::kSame,
                    "gems-basic");
}

extern const ScheduleGenerator kGemsBasic{
    "gems-basic",
    "plain model parallelism: one batch walks forward, then backward",
    "Jain et al., GEMS, SC 2020; OSU-Nowlab/MPI4DL",
    make_gems_basic,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true, .alternation = Alternation::kApart, .fewest_replicas = 1}};

}  // namespace spillway::planner
