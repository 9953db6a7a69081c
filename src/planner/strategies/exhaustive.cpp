#include <map>

#include "plan_assembly.h"
#include "replay_walk.h"
#include "spillway/base/error.h"
#include "swaps_of_all.h"

namespace spillway::planner {
namespace {

// Sets of drops times sets of swaps that may be evaluated. A step of ten operators has some
// hundreds.
constexpr std::size_t kMostChoices = 20'000;

[[noreturn]] void refuse(std::string_view what, std::size_t count) {
  throw PlanError(
      "strategy exhaustive tries up to {} choices, and this step has {} {}: take a step of about "
      "ten operators, or strategy spillway",
      kMostChoices, count, what);
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

/// Keeps, swaps or recomputes, for every stretch between two uses, in every combination. When
/// told to stop, the best of what was tried by then.
StepPlan make_exhaustive(const StepTape& tape, const SwapLimits& limits,
                         const StopCheck& should_stop) {
  std::vector<PlanAssembly> assemblies;
  std::size_t choices = 0;
  for (std::vector<Replay>& replays : possible_replays(tape)) {
    const PlanAssembly& added = assemblies.emplace_back(tape, std::move(replays), limits);
    const std::size_t stretches = added.touches().intervals.size();
    if (stretches > 20) refuse("stretches between uses of values", stretches);
    choices += std::size_t{1} << stretches;
    if (choices > kMostChoices) refuse("choices or more", choices);
  }
  SwapsOfAll best = best_of_all_swaps(assemblies, limits, should_stop);
  return std::move(assemblies[best.assembly]).finish(std::move(best.plan));
}

}  // namespace

extern const Strategy kExhaustive{
    "exhaustive", "every set of drops and whole swaps; for steps of about ten operators", "",
    make_exhaustive, /*is_start=*/false};

}  // namespace spillway::planner
