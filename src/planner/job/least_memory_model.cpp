#include "least_memory_model.h"

#include "job_costs.h"
#include "spillway/base/error.h"

namespace spillway::planner {

CutModel least_memory_model(const JobRequest& request, const Schedule& schedule,
                            const std::optional<Cuts>& cuts) {
  constexpr double kLongEnough = 1e12;
  JobRequest unlimited = request;
  unlimited.device_memory = kNoLimit;
  SegmentCosts costs(problem_for(unlimited, schedule));
  if (cuts) {
    PartitionEstimate estimate = evaluate_memory(costs, *cuts, kLongEnough);
    return {std::move(costs), std::move(estimate)};
  }
  const auto least = least_memory_cuts(costs, kLongEnough);
  if (!least) throw PlanError("a micro-batch takes more than {} s on a stage", kLongEnough);
  PartitionEstimate estimate = evaluate_memory(costs, least->cuts, kLongEnough);
  return {std::move(costs), std::move(estimate)};
}

}  // namespace spillway::planner
