#include "bottleneck_search.h"
#include "neighbour_moves.h"
#include "spillway/planner/partition/partitioners.h"
#include "whole_layer_cuts.h"

namespace spillway::partition {
namespace {

/// Sets of points, and ten for each segment, that the search for whole layers looks at besides
/// evaluating its first cuts. Some 40 ns each on the machine of the benchmark.
constexpr std::uint64_t kMostEffort = 20'000'000;
/// Units times stages up to which the cuts of others are tried.
constexpr std::uint64_t kMostTried = 200'000;
/// The same for those that draw cuts at random beyond: a tenth of a second for some that are never
/// near.
constexpr std::uint64_t kMostOfDrawnCuts = 160;
constexpr std::uint32_t kMostMoves = 64;
/// Stages up to which the others are balanced, too, once the worst one is as good as can be.
constexpr std::uint32_t kMostBalanced = 128;

std::uint64_t size_of(const SegmentCosts& costs) {
  return std::uint64_t{costs.units()} * costs.stages();
}

/// The best cuts so far, evaluated with whole layers, and what may still be spent on better ones.
class WholeLayers {
 public:
  WholeLayers(const SegmentCosts& costs, Cuts first)
      : costs_(costs), best_(std::move(first)), seconds_(evaluate(costs, best_).seconds) {}

  double seconds() const { return seconds_; }
  Cuts& best() { return best_; }

  void consider(const Cuts& cuts) {
    check(costs_, cuts);  // What follows would read past cuts that a new partitioner has wrong.
    if (whole_seconds(costs_, cuts, seconds_, effort_) >= seconds_) return;
    const PartitionEstimate estimate = evaluate(costs_, cuts);
    effort_.spend(estimate.point_sets);
    if (estimate.seconds < seconds_) seconds_ = estimate.seconds, best_ = cuts;
  }

  void try_others(double good_enough) {
    for (const Partitioner& other : partitioners().subspan(1)) {
      if (seconds_ <= good_enough || effort_.is_spent()) return;
      if (other.draws_cuts && size_of(costs_) > kMostOfDrawnCuts) continue;
      if (const auto cuts = other.make(costs_)) consider(*cuts);
    }
  }

  void try_moves() {
    const auto score = [&](Segment segment) {
      const double whole = whole_seconds(costs_, segment, kNever, effort_);
      if (effort_.is_spent()) return kNever;  // Nothing gets better any more, so moves end.
      return whole < kNever ? whole : reduced_score(costs_, segment);
    };
    consider(moved_by_neighbours(costs_, best_, score, kMostMoves));
  }

  void try_all() {
    if (const auto quicker = fastest_whole_layer_cuts(costs_, seconds_, effort_))
      consider(*quicker);
  }

 private:
  const SegmentCosts& costs_;
  Cuts best_;
  double seconds_ = 0.0;
  Effort effort_{kMostEffort};
};

/// The best cuts for fractions of layers, balanced. Where whole layers take longer: the better ones
/// of other partitioners, if the problem is small, of single moves, and of a dynamic program for
/// whole layers, as far as the effort goes.
std::optional<Cuts> cut_spillway(const SegmentCosts& costs) {
  const TimeGoal goal(costs);
  auto solved = costs.stages() > kMostBalanced ? least_bottleneck(goal, whole(costs))
                                               : balanced_cuts(goal, whole(costs));
  if (!solved) return std::nullopt;
  WholeLayers whole_layers(costs, std::move(solved->cuts));
  const double good_enough = solved->worst * (1.0 + 1e-9);
  if (size_of(costs) <= kMostTried) whole_layers.try_others(good_enough);
  if (whole_layers.seconds() > good_enough) whole_layers.try_moves();
  if (whole_layers.seconds() > good_enough) whole_layers.try_all();
  return std::move(whole_layers.best());
}

}  // namespace

extern const Partitioner kSpillway{
    "spillway", "least time after swaps and recomputation, exact; mostly balanced", "",
    Reading::kOurs, cut_spillway};

}  // namespace spillway::partition
