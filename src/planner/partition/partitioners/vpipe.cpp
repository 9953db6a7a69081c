#include "bottleneck_search.h"
#include "neighbour_moves.h"
#include "segment_goal.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::partition {
namespace {

/// Decomposed: balances times first; then plans swaps and recomputation of each stage by itself,
/// and moves layers between neighbours as long as the worst of these plans gets better.
std::optional<Cuts> cut_vpipe(const SegmentCosts& costs) {
  const RawGoal seconds(
      [&](Segment segment) { return costs.layer_seconds(segment.first, segment.end); });
  return moved_by_neighbours(
      costs, least_bottleneck(seconds, whole(costs))->cuts,
      [&](Segment segment) { return reduced_score(costs, segment); }, 4 * costs.units());
}

}  // namespace

extern const Partitioner kVpipe{
    "vpipe", "balanced times; layers move to neighbours while the worst plan gets better",
    "Zhao et al., vPipe, IEEE TPDS 33(3), 2022; its search is not in repository "
    "hku-systems/vpipe",
    Reading::kInferred, cut_vpipe};

}  // namespace spillway::partition
