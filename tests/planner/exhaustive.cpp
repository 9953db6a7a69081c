#include "exhaustive.h"

#include <algorithm>
#include <map>

#include "moment_search.h"
#include "plan_assembly.h"
#include "replay_walk.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

// Sets of drops times sets of swaps that may be evaluated. A step of ten operators has some
// hundreds.
constexpr std::size_t kMostChoices = 20'000;

[[noreturn]] void refuse(std::string_view what, std::size_t count) {
  throw PlanError("up to {} choices are tried, and this step has {} {}", kMostChoices, count, what);
}

/// Every stretch between two uses of a value that can be recomputed for the second.
std::vector<Drop> possible_drops(const StepTape& tape, const Recomputation& all) {
  std::vector<Drop> drops;
  ReplayWalk walk(all);
  for (const Interval& interval : find_intervals(tape).intervals) {
    const std::size_t end = std::size_t{interval.begin} + 1 + interval.covered_ops;
    const bool is_used = interval.end == IntervalEnd::kUsed && end < tape.ops.size();
    if (is_used && walk.can_drop(interval.value, interval.begin))
      drops.push_back({interval.value, interval.begin});
  }
  return drops;
}

/// What runs again for each set of drops, with ingredients kept or dropped again; each list once.
std::vector<std::vector<Replay>> possible_replays(const StepTape& tape) {
  const Recomputation all(tape);
  const std::vector<Drop> drops = possible_drops(tape, all);
  std::size_t count = 1;
  for (std::size_t i = 0; i < drops.size(); ++i) {
    count *= 3;
    if (count > kMostChoices) refuse("values that can be recomputed", drops.size());
  }
  std::map<std::vector<std::pair<OpIndex, OpIndex>>, std::vector<Replay>> distinct;
  for (std::size_t choice = 0; choice < count; ++choice) {
    std::vector<Drop> chosen;
    std::size_t rest = choice;
    for (const Drop& drop : drops) {
      if (rest % 3 != 0) chosen.push_back({drop.value, drop.after, rest % 3 == 2});
      rest /= 3;
    }
    const std::vector<Replay> replays = all.replays(chosen);
    std::vector<std::pair<OpIndex, OpIndex>> key;
    for (const Replay& replay : replays) key.emplace_back(replay.before, replay.op);
    distinct.try_emplace(key, replays);
  }
  std::vector<std::vector<Replay>> all_of_them;
  for (auto& [key, replays] : distinct) all_of_them.push_back(std::move(replays));
  return all_of_them;
}

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
                  std::vector<Finalist>& finalists) {
  const auto& intervals = assembly.touches().intervals;
  const std::int64_t need = std::max(limits.budget_pages, smallest_budget(assembly.steps().tape));
  for (std::size_t choice = 0; choice < std::size_t{1} << intervals.size(); ++choice) {
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

/// Takes time with two to the power of the intervals.
Finalist best_of_all_swaps(const std::vector<PlanAssembly>& assemblies, const SwapLimits& limits) {
  std::vector<Finalist> finalists;
  for (std::size_t i = 0; i < assemblies.size(); ++i)
    evaluate_all(assemblies[i], i, limits, finalists);
  Finalist best{0, assemblies[0].paged()};
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
  for (Finalist& each : finalists)
    each.plan = with_best_moments(assemblies[each.assembly], std::move(each.plan));
  keep_best(finalists, kFinalists);
  finalists.erase(std::unique(finalists.begin(), finalists.end(),
                              [](const Finalist& a, const Finalist& b) {
                                return a.assembly == b.assembly && has_same_moments(a.plan, b.plan);
                              }),
                  finalists.end());
  keep_best(finalists, kPairFinalists);
  for (Finalist& each : finalists) {
    each.plan =
        with_best_moments(assemblies[each.assembly], std::move(each.plan), MomentEffort::kPairs);
    consider(each.assembly, std::move(each.plan));
  }
  return best;
}

}  // namespace

StepPlan exhaustive_plan(const StepTape& tape, const SwapLimits& limits) {
  std::vector<PlanAssembly> assemblies;
  std::size_t choices = 0;
  for (std::vector<Replay>& replays : possible_replays(tape)) {
    const PlanAssembly& added = assemblies.emplace_back(tape, std::move(replays), limits);
    const std::size_t stretches = added.touches().intervals.size();
    if (stretches > 20) refuse("stretches between uses of values", stretches);
    choices += std::size_t{1} << stretches;
    if (choices > kMostChoices) refuse("choices or more", choices);
  }
  Finalist best = best_of_all_swaps(assemblies, limits);
  return std::move(assemblies[best.assembly]).finish(std::move(best.plan));
}

}  // namespace spillway::planner
