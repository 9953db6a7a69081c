#include "balanced_cuts.h"

namespace spillway::planner {
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

std::optional<BottleneckCuts> balanced_by_table(const SegmentGoal& goal, const CutRange& range) {
  const std::uint32_t units = range.units();
  const std::uint32_t stages = range.stages();
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
        if (cost > worst->cost) continue;
        std::vector<double> costs = with(before.costs, cost);
        if (!best.costs.empty() && !(costs < best.costs)) continue;
        best.costs = std::move(costs);
        best.begin = begin;
      }
    }
  }
  BottleneckCuts result{std::vector<std::uint32_t>(stages + 1, range.end_unit),
                        ways[stages][units].costs.front()};
  std::uint32_t end = units;
  for (std::uint32_t k = stages; k-- > 0;) {
    end = ways[k + 1][end].begin;
    result.cuts[k] = range.first_unit + end;
  }
  return result;
}

std::optional<BottleneckCuts> balanced_by_freezing(const SegmentGoal& goal, const CutRange& range,
                                                   const SolveRange& solve) {
  auto all = solve(range);
  if (!all) return std::nullopt;
  std::vector<CutRange> left;
  const auto freeze = [&](const CutRange& part, const BottleneckCuts& found) {
    std::copy(found.cuts.begin(), found.cuts.end(),
              all->cuts.begin() + (part.first_stage - range.first_stage));
    std::uint32_t worst = 0;
    double most = -1.0;
    for (std::uint32_t k = 0; k < part.stages(); ++k) {
      const double cost =
          goal.cost({found.cuts[k], found.cuts[k + 1], part.first_stage + k}, Borders::kExact);
      if (cost > most) most = cost, worst = k;
    }
    if (worst > 1)
      left.push_back(
          {part.first_unit, found.cuts[worst], part.first_stage, part.first_stage + worst});
    if (worst + 2 < part.stages())
      left.push_back(
          {found.cuts[worst + 1], part.end_unit, part.first_stage + worst + 1, part.end_stage});
  };
  freeze(range, BottleneckCuts(*all));
  while (!left.empty()) {
    const CutRange part = left.back();
    left.pop_back();
    freeze(part, *solve(part));
  }
  return all;
}

std::optional<BalancedCuts> balanced_cuts(const SegmentGoal& goal, const CutRange& range) {
  std::optional<BottleneckCuts> found;
  bool is_exact = range.stages() == 1;
  const double steps = static_cast<double>(range.units()) * range.units() * range.stages() *
                       static_cast<double>(range.stages());
  if (steps <= kMostTableSteps) {
    found = balanced_by_table(goal, range);
    is_exact = true;
  } else {
    found = balanced_by_freezing(
        goal, range, [&](const CutRange& part) { return least_bottleneck(goal, part); });
  }
  if (!found) return std::nullopt;
  return BalancedCuts{std::move(*found), is_exact};
}

}  // namespace spillway::planner
