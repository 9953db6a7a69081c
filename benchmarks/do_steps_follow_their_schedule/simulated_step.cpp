// How long a step takes by the lists of a schedule: spillway_simulated_step NAME RANKS
// MICRO_BATCHES LAYERS. A stage has so many layers, of one product in forward and two in backward;
// the gradient of a stage's input leaves before those of its weights are computed.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace {

using spillway::schedule::Action;
using spillway::schedule::ActionKind;

/// A whole backward is its two parts in a row.
std::vector<Action> in_parts(const std::vector<Action>& list) {
  std::vector<Action> parts;
  for (Action action : list) {
    action.overlaps_next = false;
    if (action.kind != ActionKind::kBackward) {
      parts.push_back(action);
      continue;
    }
    action.kind = ActionKind::kInputGradient;
    parts.push_back(action);
    action.kind = ActionKind::kWeightGradient;
    parts.push_back(action);
  }
  return parts;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  try {
    const auto number = [&](int of) { return static_cast<std::uint32_t>(std::atoi(words[of])); };
    spillway::schedule::Schedule schedule =
        spillway::planner_schedule::schedule_generator_named(words[1]).generate(
            {.ranks = number(2), .micro_batches = number(3)});
    for (std::vector<Action>& list : schedule.ranks) list = in_parts(list);
    const double layers = std::atof(words[4]);
    const auto costs = spillway::planner_schedule::even_costs(schedule, layers, layers, layers);
    std::printf("%u %.9g\n", schedule.stages, time_schedule(schedule, costs).step_seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
