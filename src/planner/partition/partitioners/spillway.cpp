#include "balanced_cuts.h"
#include "neighbour_moves.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "whole_cuts.h"

namespace spillway::planner {
namespace {

/// Cuts at which the optimum for whole layers is looked for: a second or so at most.
constexpr std::uint64_t kMostCells = 5'000;
/// Units times stages up to which the cuts of others are tried.
constexpr std::uint64_t kMostTried = 200'000;
constexpr std::uint32_t kMostMoves = 64;
/// Stages up to which the others are balanced, too, once the worst one is as good as can be.
constexpr std::uint32_t kMostBalanced = 128;

/// The cuts of the others, and single layers moved, judged with whole layers.
void try_others(const SegmentCosts& costs, double bound, Cuts& best, double& seconds) {
  const auto is_good = [&] { return seconds <= bound * (1.0 + 1e-9); };
  const auto consider = [&](const Cuts& cuts) {
    const double other = judge(costs, cuts).seconds;
    if (other < seconds) seconds = other, best = cuts;
  };
  for (const Partitioner& other : partitioners().subspan(1)) {
    if (is_good()) return;
    try {
      consider(other.make(costs));
    } catch (const PlanError&) {
      // It finds none that fit; ours do.
    }
  }
  const auto score = [&](Segment segment) {
    const double whole = whole_seconds(costs, segment);
    return whole < kNever ? whole : relieved_score(costs, segment);
  };
  if (!is_good()) consider(moved_by_neighbours(costs, best, score, kMostMoves));
}

/// The best cuts for fractions of layers, balanced. Where whole layers take longer, the best cuts
/// for whole layers; where these are too many to look at or links are shared, the best that others
/// and single moves find.
Cuts cut_spillway(const SegmentCosts& costs) {
  const TimeGoal goal(costs);
  std::optional<BottleneckCuts> solved;
  if (costs.stages() > kMostBalanced) {
    solved = least_bottleneck(goal, whole(costs));
  } else if (auto balanced = balanced_cuts(goal, whole(costs))) {
    solved = std::move(balanced->best);
  }
  if (!solved) refuse_cuts(costs);
  Cuts best = solved->cuts;
  double seconds = judge(costs, best).seconds;
  if (seconds <= solved->cost * (1.0 + 1e-9)) return best;
  const bool is_small = std::uint64_t{costs.units()} * costs.stages() <= kMostTried;
  if (is_small) try_others(costs, solved->cost, best, seconds);
  if (auto quicker = quickest_whole_cuts(costs, seconds, kMostCells)) return std::move(*quicker);
  return best;
}

}  // namespace

extern const Partitioner kSpillwayPartitioner{
    "spillway", "least time with the best swaps and recomputation, exact; then balanced", "",
    Reading::kOurs, cut_spillway};

}  // namespace spillway::planner
