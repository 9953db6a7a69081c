#include "swaps_of_all.h"

#include <algorithm>

#include "moment_search.h"

namespace spillway::planner {
namespace {

// As many of the best sets get every moment of every swap tried, one swap after the other.
constexpr std::size_t kFinalists = 800;
// And as many of the best of these the moments of all pairs of swaps.
constexpr std::size_t kPairFinalists = 64;

struct Finalist {
  std::size_t assembly = 0;
  SwapPlan plan;
};

void keep_best(std::vector<Finalist>& finalists, std::size_t most) {
  std::stable_sort(finalists.begin(), finalists.end(), [](const Finalist& a, const Finalist& b) {
    return is_better(a.plan.estimate, b.plan.estimate);
  });
  if (finalists.size() > most) finalists.resize(most);
}

/// Swaps whole intervals: all subsets that leave no operator too much.
void evaluate_all(const PlanAssembly& assembly, std::size_t index, const SwapLimits& limits,
                  const StopCheck& should_stop, std::vector<Finalist>& finalists) {
  const auto& intervals = assembly.touches().intervals;
  const std::int64_t need = std::max(limits.budget_pages, smallest_budget(assembly.steps().tape));
  for (std::size_t choice = 0; choice < std::size_t{1} << intervals.size(); ++choice) {
    if (is_told(should_stop)) return;
    std::vector<std::uint32_t> pages(intervals.size(), 0);
    for (std::size_t i = 0; i < intervals.size(); ++i)
      if (choice >> i & 1U) pages[i] = intervals[i].pages;
    LevelTree levels = assembly.levels_without(pages);
    if (levels.max(0, levels.op_count()) > need) continue;
    // Two starts: where only three swaps together are quicker at other moments, one may lead there.
    for (const WriteOutMoment moment : {WriteOutMoment::kEarly, WriteOutMoment::kLate})
      finalists.push_back({index, with_best_style(assembly, pages, moment)});
    if (finalists.size() >= 2 * kFinalists) keep_best(finalists, kFinalists);
  }
}

}  // namespace

SwapsOfAll best_of_all_swaps(std::span<const PlanAssembly> assemblies, const SwapLimits& limits,
                             const StopCheck& should_stop) {
  std::vector<Finalist> finalists;
  for (std::size_t i = 0; i < assemblies.size(); ++i)
    evaluate_all(assemblies[i], i, limits, should_stop, finalists);
  SwapsOfAll best{0, assemblies[0].paged()};
  best.plan.estimate = assemblies[0].estimate(best.plan);
  const auto consider = [&](std::size_t index, SwapPlan plan) {
    if (!is_better(plan.estimate, best.plan.estimate)) return;
    best.assembly = index;
    best.plan = std::move(plan);
  };
  for (std::size_t i = 0; i < assemblies.size(); ++i) {
    SwapPlan paged = assemblies[i].paged();
    paged.estimate = assemblies[i].estimate(paged);
    consider(i, std::move(paged));
  }
  keep_best(finalists, kFinalists);
  for (Finalist& each : finalists) {
    if (is_told(should_stop)) break;
    each.plan = with_best_moments(assemblies[each.assembly], std::move(each.plan));
  }
  keep_best(finalists, kFinalists);
  finalists.erase(std::unique(finalists.begin(), finalists.end(),
                              [](const Finalist& a, const Finalist& b) {
                                return a.assembly == b.assembly && has_same_moments(a.plan, b.plan);
                              }),
                  finalists.end());
  keep_best(finalists, kPairFinalists);
  for (Finalist& each : finalists) {
    if (!is_told(should_stop))
      each.plan =
          with_best_moments(assemblies[each.assembly], std::move(each.plan), MomentEffort::kPairs);
    consider(each.assembly, std::move(each.plan));
  }
  return best;
}

}  // namespace spillway::planner
