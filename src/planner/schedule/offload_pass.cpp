#include <algorithm>
#include <limits>

#include "action_list_edits.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/stage_turns.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway::planner {
namespace {

/// A stash that might leave for a while.
struct PossibleOffload {
  std::size_t forward = 0;  // Positions in the rank's action list.
  std::size_t use = 0;      // Of the backward.
  Action action;            // Of its micro-batch.
  double out_by = 0.0;      // When it has left, in seconds.
};

/// Adds the copies of one rank.
class RankOffload {
 public:
  RankOffload(std::vector<Action>& list, const std::vector<ActionSpan>& spans,
              const ScheduleCosts& costs)
      : list_(list), spans_(spans), costs_(costs) {}

  void add(std::size_t forward, std::size_t use) {
    absences_.push_back({forward, use, list_[use], 0.0});
  }

  void apply() {
    leave();
    come_back();
    Insertions insertions;
    // Of copies that start at the same place, the one that is needed first.
    std::sort(moved_.begin(), moved_.end(),
              [](const Moved& a, const Moved& b) { return a.absence.use < b.absence.use; });
    for (const Moved& each : moved_) {
      insertions.add(behind_sends(list_, each.absence.forward),
                     as(ActionKind::kSwapOut, each.absence.action));
      insertions.add(each.back, as(ActionKind::kSwapIn, each.absence.action));
    }
    insertions.apply(list_);
  }

 private:
  struct Moved {
    PossibleOffload absence;
    std::size_t back = 0;  // Position before which it comes back.
  };

  double busy_seconds(const PossibleOffload& absence) const {
    const Bytes stash = costs_.stages[absence.action.stage].stash;
    return static_cast<double>(stash.count()) / costs_.host.bytes_per_second;
  }

  /// From left to right, each when its forward is over and the link is free.
  void leave() {
    std::sort(
        absences_.begin(), absences_.end(),
        [](const PossibleOffload& a, const PossibleOffload& b) { return a.forward < b.forward; });
    double free = 0.0;
    for (PossibleOffload& each : absences_) {
      free = std::max(free, spans_[each.forward].end_seconds) + busy_seconds(each);
      each.out_by = free + costs_.host.latency_seconds;
    }
  }

  /// From right to left, each as late as the next one allows; those that are needed sooner than
  /// they could be away stay.
  void come_back() {
    std::sort(absences_.begin(), absences_.end(),
              [](const PossibleOffload& a, const PossibleOffload& b) { return a.use > b.use; });
    const LatestStarts latest_starts(list_, spans_);
    double busy_from = std::numeric_limits<double>::infinity();
    for (const PossibleOffload& each : absences_) {
      const StageCosts& stage = costs_.stages[each.action.stage];
      const double ahead = stage.input_gradient_seconds + stage.weight_gradient_seconds;
      const double due = spans_[each.use].start_seconds - ahead - costs_.host.latency_seconds;
      const double begin = std::min(due, busy_from) - busy_seconds(each);
      const std::size_t back = latest_starts.before(each.use, begin);
      if (begin < each.out_by || back < behind_sends(list_, each.forward)) continue;
      busy_from = begin;
      moved_.push_back({each, back});
    }
  }

  std::vector<Action>& list_;
  const std::vector<ActionSpan>& spans_;
  const ScheduleCosts& costs_;
  std::vector<PossibleOffload> absences_;
  std::vector<Moved> moved_;
};

}  // namespace

Schedule with_offloaded_stages(const Schedule& schedule, const ScheduleCosts& costs,
                               std::uint32_t stages_per_rank) {
  ScheduleCosts unlimited = costs;
  unlimited.memory.reset();
  const ScheduleTiming timing = time_schedule(schedule, unlimited);
  const StashWalk cells(schedule, {});
  const auto turns = turns_of(schedule);
  std::vector<std::size_t> forwards(cells.cell_count());
  std::vector<bool> is_taken(cells.cell_count(), false);  // Swapped or recomputed already.
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kSwapOut || action.kind == ActionKind::kRecompute)
        is_taken[cells.cell(action)] = true;
  Schedule offloaded = schedule;
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& list = schedule.ranks[rank];
    RankOffload offload(offloaded.ranks[rank], timing.spans[rank], costs);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      if (action.kind == ActionKind::kForward) forwards[cells.cell(action)] = i;
      if (!makes_input_gradient(action.kind) || is_taken[cells.cell(action)] ||
          turns[action.replica][action.stage] >= stages_per_rank ||
          costs.stages[action.stage].stash == Bytes(0))
        continue;
      offload.add(forwards[cells.cell(action)], i);
    }
    offload.apply();
  }
  return offloaded;
}

}  // namespace spillway::planner
