#include "generator_families.h"

namespace spillway::planner_schedule {
namespace {

std::uint32_t replicas_of_basic(const ScheduleRequest& request) {
  return request.replicas == 0 ? 1 : request.replicas;
}

std::optional<std::string> fault_of_gems_basic(const ScheduleRequest& request) {
  return fault_of_gems(request, replicas_of_basic(request), "gems-basic");
}

Schedule make_gems_basic(const ScheduleRequest& request) {
  // All replicas walk the same way, so the next one cannot begin before the one before is back.
  return gems_chain(request, replicas_of_basic(request), GemsDirection::kSame);
}

}  // namespace

extern const ScheduleGenerator kGemsBasic{
    "gems-basic",
    "plain model parallelism: one batch walks forward, then backward",
    "Jain et al., GEMS, SC 2020; OSU-Nowlab/MPI4DL",
    make_gems_basic,
    StagesPerRank::kOne,
    {.copies = 1, .is_whole = true, .alternation = Alternation::kApart, .fewest_replicas = 1},
    fault_of_gems_basic};

}  // namespace spillway::planner_schedule
