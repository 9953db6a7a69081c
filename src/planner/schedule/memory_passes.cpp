#include <algorithm>
#include <set>

#include "action_list_edits.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway::planner {
namespace {

/// A stash that might leave for a while.
struct Absence {
  std::uint32_t rank = 0;
  std::size_t out_before = 0;  // Positions in the rank's action list.
  std::size_t in_before = 0;
  std::size_t use = 0;  // Of the backward.
  Action action;        // Any of its micro-batch.
  double seconds = 0.0;
};

std::vector<Absence> absences_of(const Schedule& schedule, const ScheduleCosts& costs) {
  const ScheduleTiming timing = time_schedule(schedule, costs);
  const StashWalk cells(schedule, {});
  std::vector<std::size_t> forwards(cells.cell_count());
  std::vector<bool> is_taken(cells.cell_count(), false);  // Swapped or recomputed already.
  std::vector<Absence> absences;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kSwapOut || action.kind == ActionKind::kRecompute)
        is_taken[cells.cell(action)] = true;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& list = schedule.ranks[rank];
    const auto& spans = timing.spans[rank];
    const LatestStarts latest_starts(list, spans);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.kind == ActionKind::kForward) forwards[cells.cell(action)] = i;
      if (!makes_input_gradient(action.kind) || is_taken[cells.cell(action)]) continue;
      const std::size_t made = forwards[cells.cell(action)];
      const double size = static_cast<double>(costs.stages[action.stage].stash.count());
      const double one_way = size / costs.host.bytes_per_second + costs.host.latency_seconds;
      const double window = spans[i].start_seconds - spans[made].end_seconds;
      if (size == 0.0 || 2.0 * one_way > window) continue;
      const std::size_t back = latest_starts.before(i, spans[i].start_seconds - one_way);
      // Without other compute while it is away, nobody uses the room.
      const bool is_useful =
          back > made + 1 &&
          std::any_of(list.begin() + static_cast<std::ptrdiff_t>(made + 1),
                      list.begin() + static_cast<std::ptrdiff_t>(back),
                      [](const Action& between) { return is_compute(between.kind); });
      if (is_useful && spans[back - 1].end_seconds >= spans[made].end_seconds + one_way)
        absences.push_back({rank, behind_sends(list, made), back, i, action, window});
    }
  }
  std::stable_sort(absences.begin(), absences.end(),
                   [](const Absence& a, const Absence& b) { return a.seconds > b.seconds; });
  return absences;
}

Schedule with_absences(const Schedule& schedule, std::vector<Absence> absences) {
  // Of copies that start at the same place, the one that is needed first.
  std::sort(absences.begin(), absences.end(), [](const Absence& a, const Absence& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.use < b.use;
  });
  std::vector<Insertions> insertions(schedule.ranks.size());
  for (const Absence& absence : absences) {
    insertions[absence.rank].add(absence.out_before, as(ActionKind::kSwapOut, absence.action));
    insertions[absence.rank].add(absence.in_before, as(ActionKind::kSwapIn, absence.action));
  }
  Schedule swapped = schedule;
  for (std::size_t rank = 0; rank < swapped.ranks.size(); ++rank)
    insertions[rank].apply(swapped.ranks[rank]);
  return swapped;
}

/// How a schedule does under a memory limit.
struct Fit {
  bool is_better_than(const Fit& other) const {
    return excess != other.excess ? excess < other.excess : step_seconds < other.step_seconds;
  }

  Bytes excess;  // Of all ranks, over the limit.
  double step_seconds = 0.0;
  std::vector<std::uint32_t> full_ranks;
};

Fit fit_of(const Schedule& schedule, const ScheduleCosts& costs) {
  const ScheduleTiming timing = time_schedule(schedule, costs);
  Fit fit;
  fit.step_seconds = timing.step_seconds;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    if (timing.ranks[rank].peak_memory <= *costs.memory) continue;
    fit.full_ranks.push_back(rank);
    fit.excess += timing.ranks[rank].peak_memory - *costs.memory;
  }
  return fit;
}

}  // namespace

Schedule with_recomputation(const Schedule& schedule, std::span<const std::uint32_t> ranks) {
  check_shape(schedule);
  Schedule recomputed = schedule;
  for (const std::uint32_t rank : std::set<std::uint32_t>(ranks.begin(), ranks.end())) {
    if (rank >= schedule.rank_count())
      throw ConfigError("there is no rank {} to recompute on, only {}", rank,
                        schedule.rank_count());
    Insertions insertions;
    auto& list = recomputed.ranks[rank];
    std::set<Action> reduced;  // Swapped or recomputed already.
    for (const Action& action : list)
      if (action.kind == ActionKind::kSwapOut || action.kind == ActionKind::kRecompute)
        reduced.insert(as(ActionKind::kForward, action));
    for (std::size_t i = 0; i < list.size(); ++i)
      if (makes_input_gradient(list[i].kind) &&
          !reduced.contains(as(ActionKind::kForward, list[i])))
        insertions.add(before_receives(list, i), as(ActionKind::kRecompute, list[i]));
    insertions.apply(list);
  }
  return recomputed;
}

Schedule with_swapped_stashes(const Schedule& schedule, const ScheduleCosts& costs,
                              std::size_t most_runs) {
  constexpr double kRounding = 1.0 + 1e-9;
  ScheduleCosts unlimited = costs;
  unlimited.memory.reset();
  const std::vector<Absence> all = absences_of(schedule, unlimited);
  const double longest = time_schedule(schedule, unlimited).step_seconds * kRounding;
  // Whole groups first; a group that takes time is tried in halves, and dropped when it is one.
  std::vector<Absence> kept;
  std::vector<std::span<const Absence>> groups{all};
  for (std::size_t runs = 0; runs < most_runs && !groups.empty(); ++runs) {
    const std::span<const Absence> group = groups.back();
    groups.pop_back();
    std::vector<Absence> more = kept;
    more.insert(more.end(), group.begin(), group.end());
    if (time_schedule(with_absences(schedule, more), unlimited).step_seconds <= longest) {
      kept = std::move(more);
    } else if (group.size() > 1) {
      groups.push_back(group.subspan(group.size() / 2));
      groups.push_back(group.first(group.size() / 2));
    }
  }
  return with_absences(schedule, kept);
}

Schedule with_memory_fitted(const Schedule& schedule, const ScheduleCosts& costs,
                            std::size_t most_runs) {
  if (!costs.memory) throw ConfigError("there is no memory limit to fit into (set one)");
  const Schedule swapped = with_swapped_stashes(schedule, costs, most_runs);
  // Ranks whose copies do not make room in time recompute instead of waiting for it.
  ScheduleCosts unlimited = costs;
  unlimited.memory.reset();
  Schedule mixed = swapped;
  const ScheduleTiming timing = time_schedule(swapped, unlimited);
  std::vector<std::uint32_t> slow_ranks;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    if (timing.ranks[rank].peak_memory <= *costs.memory) continue;
    slow_ranks.push_back(rank);
    mixed.ranks[rank] = schedule.ranks[rank];
  }
  mixed = with_recomputation(mixed, slow_ranks);

  const Schedule* best = nullptr;
  Fit best_fit;
  const auto consider = [&](const Schedule& candidate) {
    Fit fit = fit_of(candidate, costs);
    if (best && !fit.is_better_than(best_fit)) return;
    best = &candidate;
    best_fit = std::move(fit);
  };
  consider(swapped);
  const Schedule refilled = with_recomputation(swapped, best_fit.full_ranks);
  consider(refilled);
  consider(mixed);
  const Schedule recomputed = with_recomputation(schedule, fit_of(schedule, costs).full_ranks);
  consider(recomputed);
  const std::uint32_t stages_per_rank = (schedule.stages - 1) / schedule.rank_count() + 1;
  const Schedule offloaded = with_offloaded_stages(schedule, costs, stages_per_rank);
  consider(offloaded);
  const Schedule half = with_offloaded_stages(schedule, costs, (stages_per_rank + 1) / 2);
  if (stages_per_rank > 1) consider(half);
  return *best;
}

}  // namespace spillway::planner
