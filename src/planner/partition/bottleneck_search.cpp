#include "bottleneck_search.h"

#include <cmath>

#include "greedy_cuts.h"
#include "reachable_cuts.h"

namespace spillway::planner {
namespace {

/// More than any time or memory of problems that are not refused, with room to multiply.
constexpr double kMostCost = 1e60;

/// Costs at which cuts are known to be impossible (below `least`) and possible (`best`).
class Bisection {
 public:
  Bisection(const SegmentGoal& goal, const CutRange& range) : goal_(goal), range_(range) {
    windows_.least.assign(range.stages() + 1, range.first_unit);
    windows_.most.assign(range.stages() + 1, range.end_unit);
  }

  std::optional<BottleneckCuts> run() {
    if (!probe(kMostCost)) return std::nullopt;
    while (least_ < best_.cost) {
      const double middle = least_ + (best_.cost - least_) / 2;
      probe(middle < best_.cost ? middle : least_);
    }
    return std::move(best_);
  }

 private:
  bool probe(double at) {
    if (goal_.is_monotone()) return probe_monotone(at);
    // Where borders cost, filling may miss cuts, but those that it finds hold.
    const GreedyCuts filled = greedy_cuts(goal_, range_, Borders::kExact, at);
    if (filled.is_complete && !filled.has_empty) return found(filled.cuts, at);
    return probe_reachable(at);
  }

  bool probe_monotone(double at) {
    const bool has_windows = best_.cost < kNever;
    GreedyCuts filled =
        greedy_cuts(goal_, range_, Borders::kExact, at, has_windows ? &windows_ : nullptr);
    if (!filled.is_complete) {
      windows_.least = std::move(filled.cuts);
      return not_found(at, filled.next_cost);
    }
    // An empty stage may mean that the stages before took too much, or that nothing helps.
    const bool is_found = filled.has_empty ? probe_reachable(at) : found(filled.cuts, at);
    (is_found ? windows_.most : windows_.least) = std::move(filled.cuts);
    return is_found;
  }

  bool probe_reachable(double at) {
    ReachableCuts reachable = reachable_cuts(goal_, range_, at, known_);
    if (!reachable.reached.empty())
      (reachable.cuts ? known_.at_more : known_.at_less) = std::move(reachable.reached);
    if (reachable.cuts) return found(*reachable.cuts, at);
    return not_found(at, reachable.next_cost);
  }

  bool found(const std::vector<std::uint32_t>& cuts, double at) {
    // What the segments really have, even where a bound of theirs is rounded to just below.
    const double known = bottleneck_of(goal_, range_, cuts);
    if (known > at) least_ = std::max(least_, std::nextafter(at, kNever));
    if (known <= best_.cost) best_ = {cuts, known};
    return true;
  }

  bool not_found(double at, double next_cost) {
    least_ = std::max(std::nextafter(at, kNever), std::min(next_cost, best_.cost));
    return false;
  }

  const SegmentGoal& goal_;
  const CutRange range_;
  BottleneckCuts best_{{}, kNever};
  double least_ = 0.0;
  CutWindows windows_;
  KnownCuts known_;
};

}  // namespace

std::optional<BottleneckCuts> least_bottleneck(const SegmentGoal& goal, const CutRange& range) {
  return Bisection(goal, range).run();
}

double bottleneck_of(const SegmentGoal& goal, const CutRange& range,
                     const std::vector<std::uint32_t>& cuts) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k < range.stages(); ++k)
    worst =
        std::max(worst, goal.cost({cuts[k], cuts[k + 1], range.first_stage + k}, Borders::kExact));
  return worst;
}

}  // namespace spillway::planner
