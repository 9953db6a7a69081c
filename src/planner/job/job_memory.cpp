#include "job_memory.h"

#include <algorithm>
#include <cmath>

#include "job_costs.h"

namespace spillway::planner {
namespace {

Bytes whole(double bytes) {
  return Bytes(static_cast<std::uint64_t>(std::llround(std::max(0.0, bytes))));
}

}  // namespace

std::vector<HeldBytes> bytes_before(const JobRequest& request, const SegmentCosts& costs,
                                    const PartitionEstimate& estimate) {
  std::vector<HeldBytes> all;
  for (std::uint32_t k = 0; k < estimate.stages.size(); ++k) {
    const StageEstimate& stage = estimate.stages[k];
    const StageFactors& factors = costs.problem().factors[k];
    const Segment segment = segment_of(costs, stage, k);
    const SegmentLoad load = costs.load(segment);
    const double without_relayed = costs.load(segment, Borders::kNone).fixed_bytes;
    const double buffers = costs.buffer_bytes(segment.first, segment.end);
    const Bytes states = whole(costs.static_bytes(segment.first, segment.end) - buffers -
                               count_of(stage.parameters));
    HeldBytes bytes;
    const double all_states = factors.state_copies * count_of(states);
    // Whoever has a copy has its gradients, also where one owner has the states.
    const double gradients =
        std::ceil(factors.state_copies -
                  1e-9) *  // Shares of ranks need not sum up to the last bit.
        std::min(count_of(states), costs.trained_bytes(segment.first, segment.end));
    bytes.gradients = whole(std::min(gradients, all_states));
    bytes.optimizer = whole(all_states) - bytes.gradients;
    bytes.stash = whole(load.in_flight * load.stash_bytes);
    bytes.working = largest_of(request.chain, stage, &ModelLayer::working_peak);
    bytes.relayed = whole(load.fixed_bytes - without_relayed);
    bytes.reserved = request.reserved;
    bytes.buffers = whole(buffers);
    // As the cuts have them, which see the largest working peak of a rank with each of its stages.
    const Bytes others = bytes.gradients + bytes.optimizer + bytes.buffers +
                         costs.problem().devices[k].reserved +
                         largest_of(costs.problem().chain, stage, &ModelLayer::working_peak);
    bytes.weights = whole(without_relayed - count_of(others));
    all.push_back(bytes);
  }
  return all;
}

std::vector<HeldBytes> bytes_after(const JobPlan& plan) {
  std::vector<HeldBytes> all = plan.bytes_before;
  const std::vector<StageFactors> factors = held_factors(plan.actions, plan.costs.shares);
  for (std::size_t k = 0; k < all.size(); ++k)
    all[k].stash =
        whole(factors[k].in_flight * static_cast<double>(plan.costs.stages[k].stash.count()));
  return all;
}

}  // namespace spillway::planner
