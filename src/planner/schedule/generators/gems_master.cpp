#include "gems_chain.h"

namespace spillway::planner {

static Schedule make_gems_master(const ScheduleRequest& request) {
  return gems_chain(request, request.replicas == 0 ? request.micro_batches : request.replicas,
                    GemsDirection::kInTurns, "gems-master");
}

extern const ScheduleGenerator kGemsMaster{
    "gems-master",
    "gems-mast repeated: replicas in turn forth and back before one update",
    "Jain et al., GEMS, SC 2020; order read in OSU-Nowlab/MPI4DL",
    make_gems_master,
    StagesPerRank::kOne,
    {.copies = 2,
     .is_whole = true,
     .alternation = Alternation::kMeet,
     .passes = 0,
     .fewest_replicas = 3}};

}  // namespace spillway::planner
