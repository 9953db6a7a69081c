#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <set>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/stage_turns.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway::planner_schedule {
namespace {

/// Actions that come into an action list, each before the one at a position; of one position in the
/// order in which they were added.
class Insertions {
 public:
  void add(std::size_t before, const Action& action) { entries_.push_back({before, action}); }

  void apply(std::vector<Action>& list) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.before < b.before; });
    std::vector<Action> longer;
    longer.reserve(list.size() + entries_.size());
    auto entry = entries_.begin();
    for (std::size_t i = 0; i <= list.size(); ++i) {
      for (; entry != entries_.end() && entry->before == i; ++entry)
        longer.push_back(entry->action);
      if (i < list.size()) longer.push_back(list[i]);
    }
    list = std::move(longer);
  }

 private:
  struct Entry {
    std::size_t before = 0;
    Action action;
  };

  std::vector<Entry> entries_;
};

/// Another action of the same micro-batch on the same stage.
Action as(ActionKind kind, Action action) {
  action.kind = kind;
  action.overlaps_next = false;
  return action;
}

/// The position before the receives that stand right before `i`, or before what runs as one with
/// it.
std::size_t before_receives(const std::vector<Action>& list, std::size_t i) {
  if (i > 0 && list[i - 1].overlaps_next) --i;
  while (i > 0 && schedule::is_receive(list[i - 1].kind)) --i;
  return i;
}

/// The position behind the sends of what the action at `i` has made.
std::size_t behind_sends(const std::vector<Action>& list, std::size_t i) {
  if (list[i].overlaps_next) ++i;
  do ++i;
  while (i < list.size() && schedule::is_send(list[i].kind));
  return i;
}

/// The latest places of copies back in an action list that let them start in time: the list starts
/// them when the compute before is over.
class LatestStarts {
 public:
  LatestStarts(const std::vector<Action>& list, const std::vector<ActionSpan>& spans)
      : spans_(spans) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (schedule::is_compute(list[i].kind) && !list[i].overlaps_next) computes_.push_back(i);
  }

  /// The last position before that of `use` where a copy starts by `seconds`.
  std::size_t before(std::size_t use, double seconds) const {
    const auto behind = std::partition_point(
        computes_.begin(), computes_.end(),
        [&](std::size_t i) { return i < use && spans_[i].end_seconds <= seconds; });
    return behind == computes_.begin() ? 0 : *std::prev(behind) + 1;
  }

 private:
  const std::vector<ActionSpan>& spans_;
  std::vector<std::size_t> computes_;  // Positions; they end one after the other.
};

/// A stash that might leave for a while.
struct Absence {
  std::uint32_t rank = 0;
  std::size_t out_before = 0;  // Positions in the rank's action list.
  std::size_t in_before = 0;
  std::size_t use = 0;  // Of the backward.
  Action action;        // Any of its micro-batch.
  double seconds = 0.0;
};

/// By cell, whether a stash is swapped or recomputed already, so that no pass does it again.
std::vector<bool> taken_stashes(const Schedule& schedule, const StashWalk& cells) {
  std::vector<bool> is_taken(cells.cell_count(), false);
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kSwapOut || action.kind == ActionKind::kRecompute)
        is_taken[cells.cell(action)] = true;
  return is_taken;
}

std::vector<Absence> absences_of(const Schedule& schedule, const ScheduleCosts& costs,
                                 const ScheduleTiming& timing) {
  const StashWalk cells(schedule, {});
  std::vector<std::size_t> forwards(cells.cell_count());
  const std::vector<bool> is_taken = taken_stashes(schedule, cells);
  std::vector<Absence> absences;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& list = schedule.ranks[rank];
    const auto& spans = timing.spans[rank];
    // A copy that comes back sooner than it must takes room from the actions in between.
    const LatestStarts latest_starts(list, spans);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.kind == ActionKind::kForward) forwards[cells.cell(action)] = i;
      if (!schedule::makes_input_gradient(action.kind) || is_taken[cells.cell(action)]) continue;
      const std::size_t made = forwards[cells.cell(action)];
      const Bytes size = costs.stages[action.stage].stash;
      // Out and back: where the two do not fit between forward and backward, the backward would
      // wait.
      const double one_way = costs.host.rate.seconds_for(size) + costs.host.latency_seconds;
      const double window = spans[i].start_seconds - spans[made].end_seconds;
      if (size == Bytes(0) || 2.0 * one_way > window) continue;
      const std::size_t back = latest_starts.before(i, spans[i].start_seconds - one_way);
      // Without other compute while it is away, nobody uses the room.
      const bool is_useful =
          back > made + 1 &&
          std::any_of(list.begin() + static_cast<std::ptrdiff_t>(made + 1),
                      list.begin() + static_cast<std::ptrdiff_t>(back),
                      [](const Action& between) { return schedule::is_compute(between.kind); });
      // The list starts the copy back when the compute before is over. Before the copy out has
      // ended there is nothing to bring back.
      if (is_useful && spans[back - 1].end_seconds >= spans[made].end_seconds + one_way)
        absences.push_back({rank, behind_sends(list, made), back, i, action, window});
    }
  }
  // For the same bytes over the link, the longest absence frees its room for longest.
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
    // What does not fit cannot run, however fast it is.
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

/// Finds the copies of one rank: all first leave, then come back.
class RankOffload {
 public:
  RankOffload(std::uint32_t rank, const std::vector<Action>& list,
              const std::vector<ActionSpan>& spans, const ScheduleCosts& costs)
      : rank_(rank), list_(list), spans_(spans), costs_(costs) {}

  void add(std::size_t forward, std::size_t use) { stashes_.push_back({forward, use, 0.0}); }

  void find(std::vector<Absence>& absences) {
    leave();
    come_back(absences);
  }

 private:
  struct Stash {
    std::size_t forward = 0;  // Positions in the rank's action list.
    std::size_t use = 0;      // Of the backward.
    double out_by = 0.0;      // When it has left, in seconds.
  };

  const StageCosts& stage(const Stash& stash) const {
    return costs_.stages[list_[stash.use].stage];
  }
  double busy_seconds(const Stash& stash) const {
    return costs_.host.rate.seconds_for(stage(stash).stash);
  }

  /// From left to right, each when its forward is over and the link is free.
  void leave() {
    std::sort(stashes_.begin(), stashes_.end(),
              [](const Stash& a, const Stash& b) { return a.forward < b.forward; });
    // The link carries one copy at a time, first come, first served, as in the simulator.
    double free = 0.0;
    for (Stash& each : stashes_) {
      free = std::max(free, spans_[each.forward].end_seconds) + busy_seconds(each);
      each.out_by = free + costs_.host.latency_seconds;
    }
  }

  /// From right to left, each as late as the next one allows; those that are needed sooner than
  /// they could be away stay.
  void come_back(std::vector<Absence>& absences) {
    std::sort(stashes_.begin(), stashes_.end(),
              [](const Stash& a, const Stash& b) { return a.use > b.use; });
    const LatestStarts latest_starts(list_, spans_);
    // The last backward of the list is fixed, so the latest start of its copy is known first.
    double busy_from = std::numeric_limits<double>::infinity();
    for (const Stash& each : stashes_) {
      // Done a backward ahead of its own, a copy may be late by that much, and nobody waits for it.
      const double ahead = stage(each).input_gradient_seconds + stage(each).weight_gradient_seconds;
      const double due = spans_[each.use].start_seconds - ahead - costs_.host.latency_seconds;
      const double begin = std::min(due, busy_from) - busy_seconds(each);
      const std::size_t back = latest_starts.before(each.use, begin);
      const std::size_t out = behind_sends(list_, each.forward);
      // It stays, and the link is free for the next one.
      if (begin < each.out_by || back < out) continue;
      busy_from = begin;
      absences.push_back({rank_, out, back, each.use, list_[each.use], 0.0});
    }
  }

  const std::uint32_t rank_;
  const std::vector<Action>& list_;
  const std::vector<ActionSpan>& spans_;
  const ScheduleCosts& costs_;
  std::vector<Stash> stashes_;
};

}  // namespace

Schedule with_recomputation(const Schedule& schedule, std::span<const std::uint32_t> ranks) {
  schedule::check_shape(schedule);
  Schedule recomputed = schedule;
  // A rank that is named twice must not recompute twice.
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
      if (schedule::makes_input_gradient(list[i].kind) &&
          !reduced.contains(as(ActionKind::kForward, list[i])))
        // Recomputation needs nothing from the next stage, so it goes into the wait for the
        // gradient.
        insertions.add(before_receives(list, i), as(ActionKind::kRecompute, list[i]));
    insertions.apply(list);
  }
  return recomputed;
}

Schedule with_swapped_stashes(const Schedule& schedule, const ScheduleCosts& costs,
                              std::size_t most_runs) {
  constexpr double kRounding = 1.0 + 1e-9;
  ScheduleCosts unlimited = costs;
  // Under the limit, actions wait for room. A step would tell of these waits, and not whether the
  // copies themselves cost time.
  unlimited.memory.reset();
  const ScheduleTiming timing = time_schedule(schedule, unlimited);
  const std::vector<Absence> all = absences_of(schedule, unlimited, timing);
  // Copies that change nothing but the order of sums must not count as slower.
  const double longest = timing.step_seconds * kRounding;
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
      // The half with the longer absences is the next one to be tried.
      groups.push_back(group.subspan(group.size() / 2));
      groups.push_back(group.first(group.size() / 2));
    }
  }
  return with_absences(schedule, kept);
}

Schedule with_memory_fitted(const Schedule& schedule, const ScheduleCosts& costs,
                            std::size_t most_runs) {
  if (!costs.memory) throw ConfigError("there is no memory limit to fit into (set one)");
  Schedule swapped = with_swapped_stashes(schedule, costs, most_runs);
  // Ranks whose copies do not make room in time recompute instead of waiting for it.
  ScheduleCosts unlimited = costs;
  unlimited.memory.reset();
  Schedule mixed = swapped;
  const ScheduleTiming timing = time_schedule(swapped, unlimited);
  std::vector<std::uint32_t> slow_ranks;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    if (timing.ranks[rank].peak_memory <= *costs.memory) continue;
    slow_ranks.push_back(rank);
    // `with_recomputation` leaves swapped stashes as they are, so such a rank begins without any.
    mixed.ranks[rank] = schedule.ranks[rank];
  }
  mixed = with_recomputation(mixed, slow_ranks);

  // None of these ways is the best for all: swaps cost nothing where ranks wait, recomputation
  // needs no link, offloaded stages hold least where a rank has many.
  Fit best_fit = fit_of(swapped, costs);
  const std::uint32_t stages_per_rank = (schedule.stages - 1) / schedule.rank_count() + 1;
  std::vector<Schedule> others;
  others.push_back(with_recomputation(swapped, best_fit.full_ranks));
  others.push_back(std::move(mixed));
  others.push_back(with_recomputation(schedule, fit_of(schedule, costs).full_ranks));
  others.push_back(with_offloaded_stages(schedule, costs, stages_per_rank));
  // With one stage per rank, half of them is all of them.
  if (stages_per_rank > 1)
    others.push_back(with_offloaded_stages(schedule, costs, (stages_per_rank + 1) / 2));
  Schedule best = std::move(swapped);
  for (Schedule& each : others) {
    Fit fit = fit_of(each, costs);
    if (!fit.is_better_than(best_fit)) continue;
    best = std::move(each);
    best_fit = std::move(fit);
  }
  return best;
}

Schedule with_offloaded_stages(const Schedule& schedule, const ScheduleCosts& costs,
                               std::uint32_t stages_per_rank) {
  ScheduleCosts unlimited = costs;
  unlimited.memory.reset();
  const ScheduleTiming timing = time_schedule(schedule, unlimited);
  const StashWalk cells(schedule, {});
  // The first stages of a rank have the longest-lived stashes: their backward comes last.
  const auto turns = schedule::turns_of(schedule);
  std::vector<std::size_t> forwards(cells.cell_count());
  const std::vector<bool> is_taken = taken_stashes(schedule, cells);
  std::vector<Absence> absences;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& list = schedule.ranks[rank];
    RankOffload offload(rank, list, timing.spans[rank], costs);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.kind == ActionKind::kForward) forwards[cells.cell(action)] = i;
      if (!schedule::makes_input_gradient(action.kind) || is_taken[cells.cell(action)] ||
          turns[action.replica][action.stage] >= stages_per_rank ||
          costs.stages[action.stage].stash == Bytes(0))
        continue;
      offload.add(forwards[cells.cell(action)], i);
    }
    offload.find(absences);
  }
  return with_absences(schedule, std::move(absences));
}

}  // namespace spillway::planner_schedule
