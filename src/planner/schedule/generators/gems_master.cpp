#include "generator_families.h"

namespace spillway::planner_schedule {
namespace {

std::uint32_t replicas_of_master(const ScheduleRequest& request) {
  return request.replicas == 0 ? request.micro_batches : request.replicas;
}

std::optional<std::string> fault_of_gems_master(const ScheduleRequest& request) {
  return fault_of_gems(request, replicas_of_master(request), "gems-master");
}

Schedule make_gems_master(const ScheduleRequest& request) {
  return gems_chain(request, replicas_of_master(request), GemsDirection::kInTurns);
}

}  // namespace

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
     .fewest_replicas = 3},
    fault_of_gems_master};

}  // namespace spillway::planner_schedule
