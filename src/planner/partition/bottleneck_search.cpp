#include "bottleneck_search.h"

#include <cmath>

#include "greedy_cuts.h"
#include "reachable_cuts.h"

namespace spillway::planner {
namespace {

/// More than any time or memory of problems that are not refused, with room to multiply.
constexpr double kMostCost = 1e60;
/// Of costs under shared links, which no segment has alone.
constexpr double kSharedPrecision = 1e-12;

/// Costs at which cuts are known to be impossible (below `least`) and possible (`best`).
class Bisection {
 public:
  Bisection(const SegmentGoal& goal, const CutRange& range)
      : goal_(goal), range_(range), has_shared_(!goal.shared_links().empty()) {
    windows_.least.assign(range.stages() + 1, range.first_unit);
    windows_.most.assign(range.stages() + 1, range.end_unit);
  }

  std::optional<BottleneckCuts> run() {
    if (!probe(kMostCost)) return std::nullopt;
    while (least_ < best_.cost * (has_shared_ ? 1.0 - kSharedPrecision : 1.0)) {
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
    if (!has_shared_ && !reachable.reached.empty())
      (reachable.cuts ? known_.at_more : known_.at_less) = std::move(reachable.reached);
    if (reachable.cuts) return found(*reachable.cuts, at);
    return not_found(at, has_shared_ ? at : reachable.next_cost);
  }

  bool found(const std::vector<std::uint32_t>& cuts, double at) {
    const double cost = bottleneck_of(goal_, range_, cuts);
    // With shared links `cost` is a bisection, too, and not finer than `at`. Without, `cost` is
    // what the segments really have, even where a bound of theirs is rounded to just below.
    const double known = has_shared_ ? std::min(at, cost) : cost;
    if (known > at) least_ = std::max(least_, std::nextafter(at, kNever));
    if (known <= best_.cost) best_ = {cuts, known};
    return true;
  }

  bool not_found(double at, double next_cost) {
    // With shared links a cost between is possible: nothing better is known than `at`.
    least_ = std::max(std::nextafter(at, kNever), std::min(next_cost, best_.cost));
    return false;
  }

  const SegmentGoal& goal_;
  const CutRange range_;
  const bool has_shared_;
  BottleneckCuts best_{{}, kNever};
  double least_ = 0.0;
  CutWindows windows_;
  KnownCuts known_;
};

/// Of the stages that share a link together.
double shared_bottleneck(const SegmentGoal& goal, const CutRange& range,
                         const std::vector<std::uint32_t>& cuts) {
  double low = 0.0;
  double high = kMostCost;
  if (!are_possible(goal, range, cuts, high)) return kNever;
  for (std::uint32_t k = 0; k < range.stages(); ++k)
    low = std::max(low, goal.cost({cuts[k], cuts[k + 1], range.first_stage + k}, Borders::kNone));
  if (are_possible(goal, range, cuts, low)) return low;
  // From the lower end by growing steps, since the upper one means nothing.
  for (double step = std::max(low, 1e-30) * 1e-6; low + step < high; step *= 4) {
    if (are_possible(goal, range, cuts, low + step)) {
      high = low + step;
      break;
    }
  }
  while (high - low > high * kSharedPrecision / 8) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (are_possible(goal, range, cuts, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::optional<BottleneckCuts> least_bottleneck(const SegmentGoal& goal, const CutRange& range) {
  return Bisection(goal, range).run();
}

double bottleneck_of(const SegmentGoal& goal, const CutRange& range,
                     const std::vector<std::uint32_t>& cuts) {
  if (!goal.shared_links().empty()) return shared_bottleneck(goal, range, cuts);
  double worst = 0.0;
  for (std::uint32_t k = 0; k < range.stages(); ++k)
    worst =
        std::max(worst, goal.cost({cuts[k], cuts[k + 1], range.first_stage + k}, Borders::kExact));
  return worst;
}

}  // namespace spillway::planner
