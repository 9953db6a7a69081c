#include <algorithm>

#include "bottleneck_search.h"
#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

constexpr double kMostSpreadSteps = 2e7;

/// The largest and the smallest stage of one way to cut the units so far, and where its last stage
/// begins.
struct Extremes {
  double most = 0.0;
  double least = kNever;
  double spread = kNever;
  std::uint32_t begin = 0;
};

/// One pair of extremes per number of units and stages, the one with the least difference, which
/// need not be the best to go on from.
Cuts cut_by_spread(const SegmentCosts& costs) {
  const std::uint32_t units = costs.units();
  const std::uint32_t stages = costs.stages();
  std::vector<std::vector<Extremes>> table(stages + 1, std::vector<Extremes>(units + 1));
  table[0][0].spread = 0.0;
  for (std::uint32_t k = 1; k <= stages; ++k) {
    for (std::uint32_t end = k; end <= units; ++end) {
      Extremes& best = table[k][end];
      for (std::uint32_t begin = k - 1; begin < end; ++begin) {
        const Extremes& before = table[k - 1][begin];
        if (before.spread == kNever) continue;
        const double bytes = costs.parameter_bytes(begin, end);
        const double most = std::max(before.most, bytes);
        const double least = std::min(before.least, bytes);
        if (most - least <= best.spread) best = {most, least, most - least, begin};
      }
    }
  }
  Cuts cuts(stages + 1, units);
  for (std::uint32_t k = stages; k-- > 0;) cuts[k] = table[k + 1][cuts[k + 1]].begin;
  return cuts;
}

std::optional<Cuts> cut_by_parameters(const SegmentCosts& costs) {
  const double steps = static_cast<double>(costs.units()) * costs.units() * costs.stages();
  if (steps <= kMostSpreadSteps) return cut_by_spread(costs);
  // The table would take minutes; the largest stage alone was what DeepSpeed looked at before.
  const RawGoal goal(
      [&](Segment segment) { return costs.parameter_bytes(segment.first, segment.end); });
  return least_bottleneck(goal, whole(costs))->cuts;
}

}  // namespace

extern const Partitioner kParameters{
    "parameters",
    "least difference of largest and smallest in parameters; of long ones the largest",
    "partition_balanced of DeepSpeed, repository microsoft/DeepSpeed; beyond 20 million steps its "
    "earlier criterion, the largest alone",
    Reading::kAsPublished, cut_by_parameters};

}  // namespace spillway::partition
