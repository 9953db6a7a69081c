#include "spillway/planner/partition/cut_solvers.h"

#include "bottleneck_search.h"

namespace spillway::partition {
namespace {

/// The best way to cut units up to some one for the stages up to some one.
struct Way {
  std::vector<double> costs;  ///< From the worst; none: there is no way.
  std::uint32_t begin = 0;    ///< Of the last stage.
};

/// `costs` and one more, sorted; the order of two such lists does not change when both get the
/// same.
std::vector<double> with(const std::vector<double>& costs, double more) {
  std::vector<double> all = costs;
  all.insert(std::lower_bound(all.begin(), all.end(), more, std::greater<>()), more);
  return all;
}

}  // namespace

double table_steps(const CutRange& range) {
  const double stages = range.stages();
  const double places = range.units() - stages + 1.0;  // Of each cut.
  return stages * (2.0 * places + std::max(0.0, stages - 2.0) * places * places / 2.0);
}

std::optional<SolvedCuts> balanced_by_table(const SegmentGoal& goal, const CutRange& range) {
  const std::uint32_t units = range.units();
  const std::uint32_t stages = range.stages();
  // Known beforehand: most segments cost more, and need no list of costs.
  const auto worst = least_bottleneck(goal, range);
  if (!worst) return std::nullopt;
  std::vector<std::vector<Way>> ways(stages + 1, std::vector<Way>(units + 1));
  for (std::uint32_t k = 0; k < stages; ++k) {
    const bool is_last = k + 1 == stages;
    for (std::uint32_t end = is_last ? units : k + 1; end + (stages - 1 - k) <= units; ++end) {
      Way& best = ways[k + 1][end];
      for (std::uint32_t begin = k; begin < (k == 0 ? 1 : end); ++begin) {
        const Way& before = ways[k][begin];
        if (k > 0 && before.costs.empty()) continue;
        const double cost =
            goal.cost({range.first_unit + begin, range.first_unit + end, range.first_stage + k},
                      Borders::kExact);
        // Whatever the other stages cost, such cuts are not the least ones.
        if (cost > worst->worst) continue;
        std::vector<double> costs = with(before.costs, cost);
        // As in dictionaries, the worst cost first. Of equal ways the first one stays.
        if (!best.costs.empty() && !(costs < best.costs)) continue;
        best.costs = std::move(costs);
        best.begin = begin;
      }
    }
  }
  SolvedCuts result{std::vector<std::uint32_t>(stages + 1, range.end_unit),
                    ways[stages][units].costs.front()};
  std::uint32_t end = units;
  for (std::uint32_t k = stages; k-- > 0;) {
    end = ways[k + 1][end].begin;
    result.cuts[k] = range.first_unit + end;
  }
  return result;
}

std::optional<SolvedCuts> balanced_by_freezing(const SegmentGoal& goal, const CutRange& range,
                                               const SolveRange& solve) {
  auto all = solve(range);
  if (!all) return std::nullopt;
  std::vector<CutRange> left;
  // The slowest stage cannot be any quicker, so it stays, and both sides of it are free to become
  // as even as they can.
  const auto freeze = [&](const CutRange& part, const SolvedCuts& found) {
    std::copy(found.cuts.begin(), found.cuts.end(),
              all->cuts.begin() + (part.first_stage - range.first_stage));
    std::uint32_t worst = 0;
    double most = -1.0;
    for (std::uint32_t k = 0; k < part.stages(); ++k) {
      const double cost =
          goal.cost({found.cuts[k], found.cuts[k + 1], part.first_stage + k}, Borders::kExact);
      if (cost > most) most = cost, worst = k;
    }
    // A side with one stage has one way to be cut.
    if (worst > 1)
      left.push_back(
          {part.first_unit, found.cuts[worst], part.first_stage, part.first_stage + worst});
    if (worst + 2 < part.stages())
      left.push_back(
          {found.cuts[worst + 1], part.end_unit, part.first_stage + worst + 1, part.end_stage});
  };
  freeze(range, SolvedCuts(*all));  // A copy, since cuts are written to `all`.
  while (!left.empty()) {
    const CutRange part = left.back();
    left.pop_back();
    freeze(part, *solve(part));
  }
  return all;
}

std::optional<SolvedCuts> balanced_cuts(const SegmentGoal& goal, const CutRange& range) {
  // Each way of the table carries the costs of its stages, which counts stages once more.
  const double steps = static_cast<double>(range.units()) * range.units() * range.stages() *
                       static_cast<double>(range.stages());
  if (steps <= kMostTableSteps) return balanced_by_table(goal, range);
  auto found = balanced_by_freezing(
      goal, range, [&](const CutRange& part) { return least_bottleneck(goal, part); });
  // Several cuts may have the least bottleneck, and leave unlike sides; one of them was taken.
  if (found) found->is_exact = range.stages() == 1;
  return found;
}

std::optional<SolvedCuts> least_time_cuts(const SegmentCosts& costs,
                                          MemoryReduction memory_reduction) {
  return least_bottleneck(TimeGoal(costs, memory_reduction), whole(costs));
}

std::optional<SolvedCuts> least_memory_cuts(const SegmentCosts& costs, double seconds,
                                            MemoryReduction memory_reduction) {
  return least_bottleneck(MemoryGoal(costs, seconds, memory_reduction), whole(costs));
}

std::optional<SolvedCuts> balanced_time_cuts(const SegmentCosts& costs,
                                             MemoryReduction memory_reduction) {
  return balanced_cuts(TimeGoal(costs, memory_reduction), whole(costs));
}

}  // namespace spillway::partition
