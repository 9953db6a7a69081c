#include <algorithm>
#include <map>
#include <optional>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::planner_schedule {
namespace {

Action of_stage(ActionKind kind, std::uint32_t stage) { return {kind, stage, kNoMicroBatch}; }

/// Where a rank works on one stage, before it turns to another one.
struct Turn {
  std::uint32_t stage = 0;
  std::size_t first = 0;      // Position of its first forward.
  std::size_t last_back = 0;  // Of its last backward.
};

std::vector<Turn> turns_of(const std::vector<Action>& list) {
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!schedule::is_model_compute(list[i].kind)) continue;
    if (turns.empty() || turns.back().stage != list[i].stage)
      turns.push_back({list[i].stage, i, i});
    turns.back().last_back = i;
  }
  return turns;
}

bool moves_weights(ActionKind kind) {
  return kind == ActionKind::kSendWeights || kind == ActionKind::kReceiveWeights ||
         kind == ActionKind::kSwapOutWeights || kind == ActionKind::kSwapInWeights;
}

std::vector<Action> parked(const std::vector<Action>& list) {
  const std::vector<Turn> turns = turns_of(list);
  const auto is_step = [](const Action& action) { return action.kind == ActionKind::kStep; };
  const auto first_step = std::find_if(list.begin(), list.end(), is_step) - list.begin();
  const auto steps_begin = static_cast<std::size_t>(first_step);
  std::vector<Action> longer;
  std::size_t turn = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (turn < turns.size() && i == turns[turn].last_back && turn + 1 < turns.size())
      // Beside the last backward of a turn. Sooner, both copies would be there for longer; later,
      // the next forward would wait for all of it.
      longer.push_back(of_stage(ActionKind::kSwapInWeights, turns[turn + 1].stage));
    if (i == steps_begin && turns.size() > 1)
      // Steps change both copies, and that of the turn before the last one is away.
      longer.push_back(of_stage(ActionKind::kSwapInWeights, turns[turns.size() - 2].stage));
    longer.push_back(list[i]);
    if (turn < turns.size() && i == turns[turn].last_back) {
      // The copy of the last turn stays for its step.
      if (turn + 1 < turns.size())
        longer.push_back(of_stage(ActionKind::kSwapOutWeights, turns[turn].stage));
      ++turn;
    }
  }
  // The next action list begins with the first turn again.
  const std::uint32_t first_stage = turns.front().stage;
  const auto other = std::find_if(turns.begin(), turns.end(),
                                  [&](const Turn& each) { return each.stage != first_stage; });
  if (other != turns.end() && steps_begin < list.size())
    longer.push_back(of_stage(ActionKind::kSwapOutWeights, other->stage));
  return longer;
}

}  // namespace

OrRefusal<Schedule> with_parked_weights(const Schedule& schedule) {
  schedule::check_shape(schedule);
  Schedule with_host_copies = schedule;
  bool has_two = false;
  for (auto& list : with_host_copies.ranks) {
    std::map<std::uint32_t, int> stages;
    for (const Action& action : list) {
      if (schedule::is_model_compute(action.kind)) ++stages[action.stage];
      if (action.overlaps_next)
        return no_plan(
            "{}: {} runs as one with work of another stage, so neither copy can be parked (leave "
            "parked out)",
            schedule.name, action);
      if (moves_weights(action.kind))
        return no_plan("{} moves weights already: {} (leave parked out)", schedule.name, action);
    }
    if (stages.size() > 2)
      return no_plan(
          "{}: a rank has {} stages; weights are parked where it has two (leave parked out)",
          schedule.name, stages.size());
    // The middle one of an odd number of ranks has the same stage in both directions.
    if (stages.size() < 2) continue;
    has_two = true;
    list = parked(list);
  }
  if (!has_two)
    return no_plan(
        "{}: no rank has two copies of parameters, of which one could be parked (leave parked out)",
        schedule.name);
  return with_host_copies;
}

}  // namespace spillway::planner_schedule
